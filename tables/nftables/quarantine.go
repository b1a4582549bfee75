package nftables

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// The waits between two tries of a quarantined object: the first one, which doubles
// with each refusal, and the longest.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// standing is the state that a unit should have in the kernel.
type standing uint8

const (
	// programmed: as desired.
	programmed standing = iota
	// held: as the kernel has it now, unchanged.
	held
	// closed: a chain has one rule, which drops; an entry leads to a drop.
	closed
	// absent: the kernel refuses even the closed state, so nothing may rely on the unit:
	// the chains that refer to it are closed, the entries that lead to it drop. The
	// kernel's version of it stays, unless it is an entry. A set is never closed, only
	// absent.
	absent
)

// quarantine holds the quarantined units.
type quarantine struct {
	now     func() time.Time
	refused map[kernel.Unit]*refusal
	// resting are units that a search leaves out for now.
	resting map[kernel.Unit]standing
	// causes has the reasons for each closed chain: the units that it relies on.
	causes map[string][]kernel.Unit
	// reopening are closed chains whose causes are no longer refused.
	reopening map[string]struct{}
	// round counts the Applies: refusals in the same one are one attempt.
	round int
}

// refusal is the reason for a unit's quarantine, and the time of the next try.
type refusal struct {
	object, rule, reason string
	standing             standing
	// removal says that the unit is not desired, but cannot be deleted.
	removal bool
	// trying says that an attempt with its desired content is running.
	trying bool
	// path says that the fault is a loop or the depth of a path of chains. It appears
	// only together with the chains that lead to this one.
	path        bool
	since, next time.Time
	attempts    int
	round       int
	// change is the count of changes at the refusal, verdict the desired one of an
	// entry.
	change  uint64
	verdict tables.Action
}

func newQuarantine() quarantine {
	return quarantine{now: time.Now, refused: map[kernel.Unit]*refusal{}, resting: map[kernel.Unit]standing{}, causes: map[string][]kernel.Unit{}, reopening: map[string]struct{}{}}
}

// idle reports whether every unit should be programmed as desired, and no chain in the
// kernel is closed.
func (q *quarantine) idle() bool { return len(q.refused)+len(q.resting)+len(q.causes) == 0 }

// standing returns the state that the unit itself should have. It ignores units that
// it relies on.
func (q *quarantine) standing(u kernel.Unit) standing {
	if r := q.refused[u]; r != nil && !r.trying {
		return r.standing
	}
	return q.resting[u]
}

// left reports whether the driver leaves the kernel's version of a chain or set alone.
func (q *quarantine) left(kind kernel.UnitKind, name string) bool {
	s := q.standing(kernel.Unit{Kind: kind, Name: name})
	return s == held || s == absent
}

// setAside quarantines the unit of an error. It returns an error if the unit already
// has its lowest state, or cannot be quarantined: base chains see the traffic of the
// whole host, so neither they nor the objects that they rely on may be closed.
func (t *Table) setAside(e *fault) error {
	q, u := &t.quarantine, e.Unit
	next := max(firstState(u), e.least)
	if e.removal {
		next = held
	}
	r, again := q.refused[u]
	switch {
	case u.Kind == 0:
		return e
	case again && r.trying:
		next = max(next, r.standing)
	case again && r.standing >= next && u.Kind == kernel.EntryUnit:
		// The kernel refuses the entry with its verdict and without: its map cannot be
		// trusted.
		whole := *e
		whole.Unit, whole.least = kernel.Unit{Kind: kernel.SetUnit, Name: u.Name}, absent
		if q.standing(whole.Unit) == absent {
			return nil // because of another entry
		}
		return t.setAside(&whole)
	case again && r.standing >= next:
		return e
	}
	switch base := t.reliesOn(u, next); {
	case base == u.Name && u.Kind == kernel.ChainUnit:
		return e
	case base != "":
		return fmt.Errorf("base chain %s relies on %w", base, e)
	}
	now := q.now()
	if !again {
		r = &refusal{since: now}
		q.refused[u] = r
	}
	if r.round != q.round {
		r.attempts++
		r.round = q.round
	}
	r.object, r.rule, r.reason = e.Object, e.Rule, e.Err.Error()
	r.standing, r.removal, r.trying = next, e.removal, false
	r.path = errors.Is(e.Err, unix.ELOOP) || errors.Is(e.Err, unix.EMLINK)
	r.next = now.Add(backoff(r.attempts))
	r.change = t.changes
	if u.Kind == kernel.EntryUnit {
		r.verdict = t.set(u.Name).members.want[u.Entry]
	}
	delete(q.resting, u)
	t.touchUnit(u)
	return nil
}

// firstState returns the state of a unit after the first refusal of its content.
func firstState(u kernel.Unit) standing {
	if u.Kind == kernel.SetUnit {
		return absent
	}
	return closed
}

// backoff returns the wait after a number of attempts.
func backoff(attempts int) time.Duration {
	return min(firstRetry<<min(attempts-1, 16), lastRetry)
}

// lower returns the state of a unit after the kernel has refused its planned content.
func (t *Table) lower(u kernel.Unit) standing {
	c, s := t.chains[u.Name], t.sets[u.Name]
	replaced := u.Kind == kernel.ChainUnit && c != nil && c.standIn != nil ||
		u.Kind == kernel.EntryUnit && s != nil && s.members.aside[u.Entry] == closed
	if replaced {
		return absent
	}
	return firstState(u)
}

// reliesOn returns the base chain that would be affected if the unit had this state,
// or "".
func (t *Table) reliesOn(u kernel.Unit, s standing) string {
	if s == held || u.Kind == kernel.EntryUnit {
		return ""
	}
	if c := t.chains[u.Name]; u.Kind == kernel.ChainUnit && c != nil && c.want != nil && c.want.Hook != nil {
		return u.Name
	}
	if s != absent {
		return ""
	}
	name := ""
	for _, c := range t.chains {
		if c.want != nil && c.want.Hook != nil && refersTo(c.want.Rules, u) && (name == "" || c.name < name) {
			name = c.name
		}
	}
	return name
}

// give admits the unit: the next attempt includes its desired content.
func (t *Table) give(u kernel.Unit) {
	if r := t.quarantine.refused[u]; r != nil {
		r.trying = true
	}
	delete(t.quarantine.resting, u)
	t.touchUnit(u)
}

// rest holds the unit back: the next attempt leaves its desired content out. s is the
// state of a unit that is not refused.
func (t *Table) rest(u kernel.Unit, s standing) {
	if r := t.quarantine.refused[u]; r != nil {
		r.trying = false
	} else {
		t.quarantine.resting[u] = s
	}
	t.touchUnit(u)
}

// accepted records that the kernel has accepted the tried units. Chains that refer to
// them stay closed for now. They are opened in a later attempt, so that a fault of such
// a chain is not taken for a fault of the unit.
func (t *Table) accepted() {
	q := &t.quarantine
	for u, r := range q.refused {
		if !r.trying {
			continue
		}
		delete(q.refused, u)
		t.touchUnit(u)
		for _, d := range t.closedBecauseOf(u) {
			if d.Kind == kernel.ChainUnit && q.refused[d] == nil {
				q.reopening[d.Name] = struct{}{}
				t.rest(d, held) // as it is
			}
		}
	}
}

// reopens returns the chains to open, in order.
func (t *Table) reopens() []kernel.Unit {
	var units []kernel.Unit
	for name := range t.quarantine.reopening {
		units = append(units, kernel.Unit{Kind: kernel.ChainUnit, Name: name})
	}
	clear(t.quarantine.reopening)
	slices.SortFunc(units, kernel.Unit.Compare)
	return units
}

// begin starts a round. It drops three kinds of refusals: of units that are no longer
// desired; of deletions whose unit is desired again, or gone; and of units that a base
// chain relies on by now, which have to be accepted at once.
func (t *Table) begin() {
	q := &t.quarantine
	q.round++
	if len(q.refused) == 0 {
		return
	}
	vital := t.vital()
	for u, r := range q.refused {
		if t.wants(u) == r.removal || vital[u] && t.reliesOn(u, r.standing) != "" || r.removal && !t.inKernel(u) {
			t.touchUnit(u)
			delete(q.refused, u)
		}
	}
}

func (t *Table) inKernel(u kernel.Unit) bool {
	c, s := t.chains[u.Name], t.sets[u.Name]
	switch u.Kind {
	case kernel.ChainUnit:
		return c != nil && c.have != nil
	case kernel.EntryUnit:
		return s != nil && s.have != nil && s.members.held(u.Entry).present
	}
	return s != nil && s.have != nil
}

// end resets units that are being tried, if a round ends early.
func (t *Table) end() {
	q := &t.quarantine
	clear(q.reopening)
	for u := range q.resting {
		t.give(u)
	}
	for u, r := range q.refused {
		if r.trying {
			t.rest(u, programmed)
		}
	}
}

// wants reports whether the unit is desired. A set with members counts: it is refused
// because it is not desired otherwise.
func (t *Table) wants(u kernel.Unit) bool {
	if u.Kind == kernel.ChainUnit {
		c := t.chains[u.Name]
		return c != nil && c.want != nil
	}
	s := t.sets[u.Name]
	if s == nil {
		return false
	}
	_, ok := s.members.want[u.Entry]
	return ok || u.Kind == kernel.SetUnit && (s.wanted || len(s.members.want) > 0)
}
