package nftables

import (
	"context"
	"errors"
	"slices"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// trial is a way to try units, some of which the kernel refuses without saying
// which.
type trial struct {
	// give has a unit take part in the next attempt, rest takes that back.
	give, rest func(kernel.Unit)
	// least is the highest standing of a unit that turns out to be at fault.
	least standing
}

// admission tries the wanted content of units. In a table that decides nothing
// yet, what waits stands closed meanwhile; otherwise it stays as the kernel has
// it.
func (t *Table) admission(anew bool) trial {
	return trial{give: t.give, rest: func(u kernel.Unit) {
		if anew && u.Kind != kernel.SetUnit && t.wants(u) {
			t.rest(u, closed)
		} else {
			t.rest(u, held)
		}
	}}
}

// closing tries to have units stand closed, instead of as the kernel has them.
func (t *Table) closing() trial {
	return trial{
		give:  func(u kernel.Unit) { t.rest(u, closed) },
		rest:  func(u kernel.Unit) { t.rest(u, held) },
		least: absent,
	}
}

// search finds what the kernel refuses without naming it. At first everything
// that the refused transaction was about rests: it stays as the kernel has it, and
// a chain that is not there, but that others may lead to, stands closed. From
// this state units are given what is wanted, and each step that the kernel
// accepts stays, so that it takes two steps for each doubling of their number.
//
// In a table that decides nothing yet, all chains begin closed: the fault may be
// in what is there already, since the kernel looks for loops from base chains on.
func (t *Table) search(ctx context.Context, refusal error, result *tables.Result) error {
	if _, err := t.learn(result); err != nil {
		return err
	}
	if t.exists {
		// What is there already once more, which changes nothing: a kernel that
		// refuses that refuses everything, and no object is to blame.
		if err := t.conn.Commit([]kernel.Op{{Kind: kernel.AddTable}}); err != nil {
			return errors.Join(refusal, err)
		}
	}
	vital := t.vital()
	anew := t.mistyped() || !t.decides()
	suspects := t.suspects(anew, vital)
	if len(suspects) == 0 {
		return refusal
	}
	var missing []kernel.Unit
	for _, u := range suspects {
		t.rest(u, held)
		if u.Kind != kernel.ChainUnit {
			t.set(u.Name).single = true
		}
		switch {
		case u.Kind == kernel.SetUnit || !t.wants(u) || !anew && t.inForce(u):
		case vital[u]:
			t.rest(u, closed)
		default:
			missing = append(missing, u)
		}
	}
	if err := t.attempt(ctx, false, result); err != nil {
		return err
	}
	if _, err := t.probe(ctx, t.closing(), missing, nil, result); err != nil {
		return err
	}
	if _, err := t.probe(ctx, t.admission(anew), suspects, refusal, result); err != nil {
		return err
	}
	// What was blamed may be innocent now that all else is as wanted.
	var blamed []kernel.Unit
	for _, u := range suspects {
		if t.quarantine.refused[u] != nil {
			blamed = append(blamed, u)
		}
	}
	_, err := t.probe(ctx, t.admission(false), blamed, nil, result)
	return err
}

// probe tries units and sets aside those that the kernel refuses: all at once,
// and where it names none, by halves. A refusal that is given says that all of
// them at once were refused already. It reports whether any was at fault.
func (t *Table) probe(ctx context.Context, way trial, units []kernel.Unit, refusal error, result *tables.Result) (faulty bool, err error) {
	if len(units) == 0 {
		return false, nil
	}
	if refusal == nil || len(units) == 1 {
		for _, u := range units {
			way.give(u)
		}
		refusal = t.attempt(ctx, false, result)
		if refusal == nil || !isRefusal(refusal) {
			return false, refusal
		}
		again, err := t.condemn(refusal)
		switch {
		case err != nil:
			return true, err
		case again:
			_, err := t.probe(ctx, way, t.notAside(units), nil, result)
			return true, err
		case len(units) == 1:
			return true, t.blame(ctx, way, units[0], refusal, result)
		}
		for _, u := range units {
			way.rest(u)
		}
	}
	half := len(units) / 2
	if faulty, err = t.probe(ctx, way, units[:half], nil, result); err != nil {
		return true, err
	}
	if faulty {
		refusal = nil
	}
	_, err = t.probe(ctx, way, units[half:], refusal, result)
	return true, err
}

// notAside returns the units that still take part.
func (t *Table) notAside(units []kernel.Unit) []kernel.Unit {
	return slices.DeleteFunc(slices.Clone(units), func(u kernel.Unit) bool {
		r := t.quarantine.refused[u]
		return r != nil && !r.trying
	})
}

// blame sets a unit aside that cannot be programmed, and programs what takes its
// place. If the kernel refuses that, the next lower standing is its, and at last
// what stands closed because of it is looked into.
func (t *Table) blame(ctx context.Context, way trial, u kernel.Unit, refusal error, result *tables.Result) error {
	e := t.accuse(u, refusal)
	e.least = max(way.least, t.lower(u))
	for {
		if err := t.setAside(e); err != nil {
			return err
		}
		refusal = t.attempt(ctx, false, result)
		if refusal == nil || !isRefusal(refusal) {
			return refusal
		}
		r := t.quarantine.refused[u]
		if r.standing == absent && u.Kind == kernel.EntryUnit {
			u = kernel.Unit{Kind: kernel.SetUnit, Name: u.Name}
		} else if r.standing == absent || r.removal {
			break
		}
		e.least = absent
	}
	dependents := t.closedBecauseOf(u)
	if len(dependents) == 0 {
		return refusal
	}
	for _, d := range dependents {
		t.rest(d, held)
	}
	if _, err := t.probe(ctx, t.closing(), dependents, refusal, result); err != nil {
		return err
	}
	for _, d := range dependents {
		if t.quarantine.refused[d] == nil {
			t.give(d)
		}
	}
	return nil
}

// accuse returns the error of a unit that was found to be at fault. What the
// kernel said counts as the reason; what it named only if that was the unit.
func (t *Table) accuse(u kernel.Unit, refusal error) *fault {
	e := fault{removal: !t.wants(u)}
	e.Object, e.Name, e.Unit = "chain", u.Name, u
	if u.Kind != kernel.ChainUnit {
		e.Object = t.set(u.Name).shape.Noun()
	}
	if u.Kind == kernel.EntryUnit {
		e.Rule = kernel.Change{Member: u.Entry, Verdict: t.set(u.Name).members.want[u.Entry]}.String()
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

// closedBecauseOf returns the chains and entries other than the unit itself that
// stand closed because of it, sorted.
func (t *Table) closedBecauseOf(u kernel.Unit) []kernel.Unit {
	var out []kernel.Unit
	for name, causes := range t.quarantine.causes {
		if c := (kernel.Unit{Kind: kernel.ChainUnit, Name: name}); c != u && slices.Contains(causes, u) {
			out = append(out, c)
		}
	}
	if u.Kind == kernel.ChainUnit {
		for name, s := range t.sets {
			for m, st := range s.members.aside {
				if st == closed && tables.Target(s.members.want[m]) == u.Name {
					out = append(out, kernel.Unit{Kind: kernel.EntryUnit, Name: name, Entry: m})
				}
			}
		}
	}
	slices.SortFunc(out, kernel.Unit.Compare)
	return out
}
