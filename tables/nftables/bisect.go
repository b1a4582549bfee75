package nftables

import (
	"context"
	"errors"
	"slices"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// trial is a way to try units, some of which the kernel refuses without saying
// which.
type trial struct {
	// admit includes a unit in the next attempt, hold leaves it out.
	admit, hold func(kernel.Unit)
	// atMost is the highest state of a unit that turns out to be at fault.
	atMost unitState
}

// admission tries the desired content of units. A unit that is held back stays as the
// kernel has it; with anew, in a table that sees no traffic yet, it is closed.
func (f *faultFinder) admission(anew bool) trial {
	return trial{admit: f.quarantine.admit, hold: func(u kernel.Unit) {
		if anew && u.Kind != kernel.SetUnit && f.isDesired(u) {
			f.quarantine.hold(u, closed)
		} else {
			f.quarantine.hold(u, kept)
		}
	}}
}

// closing tries to close units that are held as the kernel has them.
func (f *faultFinder) closing() trial {
	return trial{
		admit:  func(u kernel.Unit) { f.quarantine.hold(u, closed) },
		hold:   func(u kernel.Unit) { f.quarantine.hold(u, kept) },
		atMost: absent,
	}
}

// search finds a unit that the kernel refuses without naming it. At first it holds back all units of the
// refused transaction: they stay as the kernel has them, and a missing chain that others may lead to is
// closed. Then it admits units again, by halves. Each step that the kernel accepts stays, so the search takes
// two steps for each doubling of the number of units.
//
// In a table that sees no traffic yet, all chains begin closed: the fault may be in a
// chain that the kernel already has, since the kernel looks for loops from base chains on.
func (f *faultFinder) search(ctx context.Context, refusal error, result *tables.Result) error {
	if _, err := f.table.learn(result); err != nil {
		return err
	}
	if f.exists {
		// If the kernel refuses even this, no object is at fault.
		if err := f.table.commitNothing(); err != nil {
			return errors.Join(refusal, err)
		}
	}
	required := f.required()
	anew := f.quarantine.mistyped() || !f.filters()
	candidates := f.candidates(anew, required)
	if len(candidates) == 0 {
		return refusal
	}
	var missing []kernel.Unit
	for _, u := range candidates {
		f.quarantine.hold(u, kept)
		if u.Kind != kernel.ChainUnit {
			f.set(u.Name).single = true
		}
		switch {
		case u.Kind == kernel.SetUnit || !f.isDesired(u) || !anew && f.inForce(u):
		case required[u]:
			f.quarantine.hold(u, closed)
		default:
			missing = append(missing, u)
		}
	}
	if err := f.table.attempt(ctx, false, result); err != nil {
		return err
	}
	if err := f.probe(ctx, f.closing(), missing, nil, result); err != nil {
		return err
	}
	if err := f.probe(ctx, f.admission(anew), candidates, refusal, result); err != nil {
		return err
	}
	// Units that were found at fault may be accepted now that all others are as desired.
	var refusedNow []kernel.Unit
	for _, u := range candidates {
		if f.quarantine.refused[u] != nil {
			refusedNow = append(refusedNow, u)
		}
	}
	return f.probe(ctx, f.admission(false), refusedNow, nil, result)
}

// probe tries units and quarantines those that the kernel refuses: all at once,
// and where it names none, by halves. A refusal that is given says that all of
// them at once were refused already.
func (f *faultFinder) probe(ctx context.Context, way trial, units []kernel.Unit, refusal error, result *tables.Result) error {
	search := isolate.Search[kernel.Unit]{
		Admit:     each(way.admit),
		Hold:      each(way.hold),
		Try:       func() error { return f.table.attempt(ctx, false, result) },
		IsRefusal: isRefusal,
		Named: func(units []kernel.Unit, refusal error) ([]kernel.Unit, bool, error) {
			named, err := f.quarantine.addNamed(refusal)
			return f.notQuarantined(units), named, err
		},
		Isolate: func(u kernel.Unit, refusal error) error { return f.isolate(ctx, way, u, refusal, result) },
	}
	return search.Run(units, refusal)
}

func each(do func(kernel.Unit)) func([]kernel.Unit) {
	return func(units []kernel.Unit) {
		for _, u := range units {
			do(u)
		}
	}
}

// notQuarantined returns the units that still take part.
func (f *faultFinder) notQuarantined(units []kernel.Unit) []kernel.Unit {
	return slices.DeleteFunc(slices.Clone(units), func(u kernel.Unit) bool {
		r := f.quarantine.refused[u]
		return r != nil && !r.trying
	})
}

// isolate quarantines a unit that cannot be programmed, and programs its replacement. If
// the kernel refuses that too, the unit gets the next lower state. At last isolate tries
// the units that are closed because of it.
func (f *faultFinder) isolate(ctx context.Context, way trial, u kernel.Unit, refusal error, result *tables.Result) error {
	e := f.faultOf(u, refusal)
	e.atMost = max(way.atMost, f.quarantine.lowerState(u))
	for {
		if err := f.quarantine.add(e); err != nil {
			return err
		}
		refusal = f.table.attempt(ctx, false, result)
		if refusal == nil || !isRefusal(refusal) {
			return refusal
		}
		r := f.quarantine.refused[u]
		if r.state == absent && u.Kind == kernel.EntryUnit {
			u = kernel.Unit{Kind: kernel.SetUnit, Name: u.Name}
		} else if r.state == absent || r.removal {
			break
		}
		e.atMost = absent
	}
	dependents := f.quarantine.closedBecauseOf(u)
	if len(dependents) == 0 {
		return refusal
	}
	for _, d := range dependents {
		f.quarantine.hold(d, kept)
	}
	if err := f.probe(ctx, f.closing(), dependents, refusal, result); err != nil {
		return err
	}
	for _, d := range dependents {
		if f.quarantine.refused[d] == nil {
			f.quarantine.admit(d)
		}
	}
	return nil
}

// faultOf returns the error of a refused unit. The kernel's error is the reason; its named object counts only
// if that is the unit.
func (f *faultFinder) faultOf(u kernel.Unit, refusal error) *fault {
	e := fault{removal: !f.isDesired(u)}
	e.Object, e.Name, e.Unit = "chain", u.Name, u
	if u.Kind != kernel.ChainUnit {
		e.Object = f.set(u.Name).shape.Noun()
	}
	if u.Kind == kernel.EntryUnit {
		e.Rule = kernel.Change{Member: u.Entry, Verdict: f.set(u.Name).members.desired[u.Entry]}.String()
	}
	e.Err = refusal
	for _, o := range refusedObjects(refusal) {
		e.Err = o.Err
		if o.Unit == u {
			e.Rule = o.Rule
			break
		}
	}
	return &e
}

// filters reports whether the table sees traffic: a desired base chain is
// in the kernel.
func (f *faultFinder) filters() bool {
	for _, c := range f.chains {
		if c.desired != nil && c.desired.Hook != nil && c.observed != nil && c.observed.Base != (kernel.BaseHook{}) {
			return true
		}
	}
	return false
}
