package nftables

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// quarantine holds the quarantined units.
type quarantine struct {
	*objects
	now     func() time.Time
	refused map[kernel.Unit]*refusal
	// onHold are units that a search leaves out for now.
	onHold map[kernel.Unit]unitState
	// causes has the reasons for each closed chain: the units that it relies on.
	causes map[string][]kernel.Unit
	// reopening are closed chains without a refused cause.
	reopening map[string]struct{}
	// round counts the Applies: refusals in the same one are one attempt.
	round int
}

// refusal is the reason for a unit's quarantine, and the time of the next try.
type refusal struct {
	object, rule, reason string
	state                unitState
	// removal says that the unit is not desired, but cannot be deleted.
	removal bool
	// trying says that an attempt with its desired content is running.
	trying bool
	// path says that the fault is a loop or the depth of a path of chains. It appears
	// only together with the chains that lead to this one.
	path bool
	isolate.Retry
	round int
	// change is the count of changes at the refusal, verdict the desired one of an
	// entry.
	change  uint64
	verdict tables.Action
}

func newQuarantine(o *objects) *quarantine {
	return &quarantine{objects: o, now: time.Now, refused: map[kernel.Unit]*refusal{}, onHold: map[kernel.Unit]unitState{}, causes: map[string][]kernel.Unit{}, reopening: map[string]struct{}{}}
}

// idle reports whether every unit should be programmed as desired, and no chain in the
// kernel is closed.
func (q *quarantine) idle() bool { return len(q.refused)+len(q.onHold)+len(q.causes) == 0 }

// state returns the state that the unit itself should have. It ignores units that
// it relies on.
func (q *quarantine) state(u kernel.Unit) unitState {
	if r := q.refused[u]; r != nil && !r.trying {
		return r.state
	}
	return q.onHold[u]
}

// leaves reports whether the driver leaves the kernel's version of a chain or set alone.
func (q *quarantine) leaves(kind kernel.UnitKind, name string) bool {
	s := q.state(kernel.Unit{Kind: kind, Name: name})
	return s == kept || s == absent
}

// add quarantines the unit of an error. It returns an error if the unit already
// has its lowest state, or cannot be quarantined: base chains see the traffic of the
// whole host, so neither they nor the objects that they rely on may be closed.
func (q *quarantine) add(e *fault) error {
	u := e.Unit
	next := max(firstState(u), e.atMost)
	if e.removal {
		next = kept
	}
	r, again := q.refused[u]
	switch {
	case u.Kind == 0:
		return e
	case again && r.trying:
		next = max(next, r.state)
	case again && r.state >= next && u.Kind == kernel.EntryUnit:
		// The kernel refuses the entry with its verdict and without: its map cannot be
		// trusted.
		whole := *e
		whole.Unit, whole.atMost = kernel.Unit{Kind: kernel.SetUnit, Name: u.Name}, absent
		if q.state(whole.Unit) == absent {
			return nil // because of another entry
		}
		return q.add(&whole)
	case again && r.state >= next:
		return e
	}
	switch base := q.reliesOn(u, next); {
	case base == u.Name && u.Kind == kernel.ChainUnit:
		return e
	case base != "":
		return fmt.Errorf("base chain %s relies on %w", base, e)
	}
	if !again {
		r = &refusal{}
		q.refused[u] = r
	}
	if r.round != q.round {
		r.round = q.round
		r.Refused(q.now())
	} else {
		r.RefusedAgain(q.now())
	}
	r.object, r.rule, r.reason = e.Object, e.Rule, e.Err.Error()
	r.state, r.removal, r.trying = next, e.removal, false
	r.path = errors.Is(e.Err, unix.ELOOP) || errors.Is(e.Err, unix.EMLINK)
	r.change = q.changes
	if u.Kind == kernel.EntryUnit {
		r.verdict = q.set(u.Name).members.desired[u.Entry]
	}
	delete(q.onHold, u)
	q.markDirty(u)
	return nil
}

// firstState returns the state of a unit after the first refusal of its content.
func firstState(u kernel.Unit) unitState {
	if u.Kind == kernel.SetUnit {
		return absent
	}
	return closed
}

// lowerState returns the state of a unit after the kernel has refused its planned content.
func (q *quarantine) lowerState(u kernel.Unit) unitState {
	c, s := q.chains[u.Name], q.sets[u.Name]
	replaced := u.Kind == kernel.ChainUnit && c != nil && c.replacement != nil ||
		u.Kind == kernel.EntryUnit && s != nil && s.members.quarantined[u.Entry] == closed
	if replaced {
		return absent
	}
	return firstState(u)
}

// reliesOn returns the base chain that would be affected if the unit had this state,
// or "".
func (q *quarantine) reliesOn(u kernel.Unit, s unitState) string {
	if s == kept || u.Kind == kernel.EntryUnit {
		return ""
	}
	if c := q.chains[u.Name]; u.Kind == kernel.ChainUnit && c != nil && c.desired != nil && c.desired.Hook != nil {
		return u.Name
	}
	if s != absent {
		return ""
	}
	name := ""
	for _, c := range q.chains {
		if c.desired != nil && c.desired.Hook != nil && refersTo(c.desired.Rules, u) && (name == "" || c.name < name) {
			name = c.name
		}
	}
	return name
}

// admit admits the unit: the next attempt includes its desired content.
func (q *quarantine) admit(u kernel.Unit) {
	if r := q.refused[u]; r != nil {
		r.trying = true
	}
	delete(q.onHold, u)
	q.markDirty(u)
}

// hold holds the unit back: the next attempt leaves its desired content out. s is the
// state of a unit that is not refused.
func (q *quarantine) hold(u kernel.Unit, s unitState) {
	if r := q.refused[u]; r != nil {
		r.trying = false
	} else {
		q.onHold[u] = s
	}
	q.markDirty(u)
}

// accepted records that the kernel has accepted the tried units. Chains that refer to
// them stay closed for now. They are opened in a later attempt, so that a fault of such
// a chain is not taken for a fault of the unit.
func (q *quarantine) accepted() {
	for u, r := range q.refused {
		if !r.trying {
			continue
		}
		delete(q.refused, u)
		q.markDirty(u)
		for _, d := range q.closedBecauseOf(u) {
			if d.Kind == kernel.ChainUnit && q.refused[d] == nil {
				q.reopening[d.Name] = struct{}{}
				q.hold(d, kept) // as it is
			}
		}
	}
}

// reopens returns the chains to open, in order.
func (q *quarantine) reopens() []kernel.Unit {
	var units []kernel.Unit
	for name := range q.reopening {
		units = append(units, kernel.Unit{Kind: kernel.ChainUnit, Name: name})
	}
	clear(q.reopening)
	slices.SortFunc(units, kernel.Unit.Compare)
	return units
}

// begin starts a round. It drops three kinds of refusals: of units that are no longer desired; of deletions
// if the unit is desired again, or gone; and of units that a base chain refers to by now, which have to be
// accepted at once.
func (q *quarantine) begin() {
	q.round++
	if len(q.refused) == 0 {
		return
	}
	required := q.required()
	for u, r := range q.refused {
		if q.isDesired(u) == r.removal || required[u] && q.reliesOn(u, r.state) != "" || r.removal && !q.inKernel(u) {
			q.markDirty(u)
			delete(q.refused, u)
		}
	}
}

// end resets units that are being tried, if a round ends early.
func (q *quarantine) end() {
	clear(q.reopening)
	for u := range q.onHold {
		q.admit(u)
	}
	for u, r := range q.refused {
		if r.trying {
			q.hold(u, programmed)
		}
	}
}

// refuses reports whether a unit counts as quarantined for the chains that ask it. While
// it is tried, they wait for the outcome. A fault in a path of chains is an exception: it
// shows only together with them.
func (q *quarantine) refuses(u kernel.Unit) bool {
	r := q.refused[u]
	return r != nil && !r.removal && !(r.trying && r.path)
}

// absentChain reports whether a chain is quarantined that cannot even be closed.
func (q *quarantine) absentChain() bool {
	for u, r := range q.refused {
		if u.Kind == kernel.ChainUnit && !r.trying && r.state == absent {
			return true
		}
	}
	return false
}

// markDirty has the unit compared with the kernel, with all that cannot refer to it.
func (q *quarantine) markDirty(u kernel.Unit) {
	switch u.Kind {
	case kernel.SetUnit:
		q.dirtySets.add(u.Name)
	case kernel.EntryUnit:
		q.dirtySets.add(u.Name)
		q.set(u.Name).members.markDirty(u.Entry)
		return
	default:
		q.dirtyChains.add(u.Name)
	}
	if r := q.refused[u]; r != nil && r.state == absent {
		q.markReferrersOf(u)
	}
}

// mistyped reports whether a desired set is in the kernel with another type.
func (q *quarantine) mistyped() bool {
	for name := range q.dirtySets {
		if s, ok := q.sets[name]; ok && s.desired && s.observed != nil && s.observed.shape != s.shape && !q.leaves(kernel.SetUnit, name) {
			return true
		}
	}
	return false
}

// closedBecauseOf returns the other chains and entries that are closed because of the
// unit, sorted.
func (q *quarantine) closedBecauseOf(u kernel.Unit) []kernel.Unit {
	var out []kernel.Unit
	for name, causes := range q.causes {
		if c := (kernel.Unit{Kind: kernel.ChainUnit, Name: name}); c != u && slices.Contains(causes, u) {
			out = append(out, c)
		}
	}
	if u.Kind == kernel.ChainUnit {
		for name, s := range q.sets {
			for m, st := range s.members.quarantined {
				if st == closed && tables.Target(s.members.desired[m]) == u.Name {
					out = append(out, kernel.Unit{Kind: kernel.EntryUnit, Name: name, Entry: m})
				}
			}
		}
	}
	slices.SortFunc(out, kernel.Unit.Compare)
	return out
}
