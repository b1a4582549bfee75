package nftables

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// The waits between two tries of a quarantined object: the first one, which doubles
// with each refusal, and the longest.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// unit is the smallest object that is quarantined by itself: a chain, a set or map, or
// one entry of a map. A set with one bad member is quarantined as a whole, since the
// effect of a missing member depends on the rules that use the set.
type unit struct {
	kind  unitKind
	name  string
	entry model.Member // of entries
}

type unitKind uint8

// The kinds, in the order in which they are tried: objects come before the rules that
// refer to them. The zero value is the table, which cannot be quarantined.
const (
	setUnit unitKind = iota + 1
	chainUnit
	entryUnit
)

func (u unit) compare(o unit) int {
	return cmp.Or(cmp.Compare(u.kind, o.kind), cmp.Compare(u.name, o.name), u.entry.Compare(o.entry))
}

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
	refused map[unit]*refusal
	// resting are units that a search leaves out for now.
	resting map[unit]standing
	// causes has the reasons for each closed chain: the units that it relies on.
	causes map[string][]unit
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
	return quarantine{now: time.Now, refused: map[unit]*refusal{}, resting: map[unit]standing{}, causes: map[string][]unit{}, reopening: map[string]struct{}{}}
}

// idle reports whether every unit should be programmed as desired, and no chain in the
// kernel is closed.
func (q *quarantine) idle() bool { return len(q.refused)+len(q.resting)+len(q.causes) == 0 }

// standing returns the state that the unit itself should have. It ignores units that
// it relies on.
func (q *quarantine) standing(u unit) standing {
	if r := q.refused[u]; r != nil && !r.trying {
		return r.standing
	}
	return q.resting[u]
}

// left reports whether the driver leaves the kernel's version of a chain or set alone.
func (q *quarantine) left(kind unitKind, name string) bool {
	s := q.standing(unit{kind: kind, name: name})
	return s == held || s == absent
}

// setAside quarantines the unit of an error. It returns an error if the unit already
// has its lowest state, or cannot be quarantined: base chains see the traffic of the
// whole host, so neither they nor the objects that they rely on may be closed.
func (t *Table) setAside(e *objectError) error {
	q, u := &t.quarantine, e.unit
	next := max(u.first(), e.least)
	if e.removal {
		next = held
	}
	r, again := q.refused[u]
	switch {
	case u.kind == 0:
		return e
	case again && r.trying:
		next = max(next, r.standing)
	case again && r.standing >= next && u.kind == entryUnit:
		// The kernel refuses the entry with its verdict and without: its map cannot be
		// trusted.
		whole := *e
		whole.unit, whole.least = unit{kind: setUnit, name: u.name}, absent
		if q.standing(whole.unit) == absent {
			return nil // because of another entry
		}
		return t.setAside(&whole)
	case again && r.standing >= next:
		return e
	}
	switch base := t.reliesOn(u, next); {
	case base == u.name && u.kind == chainUnit:
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
	if u.kind == entryUnit {
		r.verdict = t.set(u.name).members.want[u.entry]
	}
	delete(q.resting, u)
	t.touchUnit(u)
	return nil
}

// first returns the state of a unit after the first refusal of its content.
func (u unit) first() standing {
	if u.kind == setUnit {
		return absent
	}
	return closed
}

// backoff returns the wait after a number of attempts.
func backoff(attempts int) time.Duration {
	return min(firstRetry<<min(attempts-1, 16), lastRetry)
}

// lower returns the state of a unit after the kernel has refused its planned content.
func (t *Table) lower(u unit) standing {
	c, s := t.chains[u.name], t.sets[u.name]
	replaced := u.kind == chainUnit && c != nil && c.standIn != nil ||
		u.kind == entryUnit && s != nil && s.members.aside[u.entry] == closed
	if replaced {
		return absent
	}
	return u.first()
}

// reliesOn returns the base chain that would be affected if the unit had this state,
// or "".
func (t *Table) reliesOn(u unit, s standing) string {
	if s == held || u.kind == entryUnit {
		return ""
	}
	if c := t.chains[u.name]; u.kind == chainUnit && c != nil && c.want != nil && c.want.Hook != nil {
		return u.name
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
func (t *Table) give(u unit) {
	if r := t.quarantine.refused[u]; r != nil {
		r.trying = true
	}
	delete(t.quarantine.resting, u)
	t.touchUnit(u)
}

// rest holds the unit back: the next attempt leaves its desired content out. s is the
// state of a unit that is not refused.
func (t *Table) rest(u unit, s standing) {
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
			if d.kind == chainUnit && q.refused[d] == nil {
				q.reopening[d.name] = struct{}{}
				t.rest(d, held) // as it is
			}
		}
	}
}

// reopens returns the chains to open, in order.
func (t *Table) reopens() []unit {
	var units []unit
	for name := range t.quarantine.reopening {
		units = append(units, unit{kind: chainUnit, name: name})
	}
	clear(t.quarantine.reopening)
	slices.SortFunc(units, unit.compare)
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

func (t *Table) inKernel(u unit) bool {
	c, s := t.chains[u.name], t.sets[u.name]
	switch u.kind {
	case chainUnit:
		return c != nil && c.have != nil
	case entryUnit:
		return s != nil && s.have != nil && s.members.held(u.entry).present
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
func (t *Table) wants(u unit) bool {
	if u.kind == chainUnit {
		c := t.chains[u.name]
		return c != nil && c.want != nil
	}
	s := t.sets[u.name]
	if s == nil {
		return false
	}
	_, ok := s.members.want[u.entry]
	return ok || u.kind == setUnit && (s.wanted || len(s.members.want) > 0)
}
