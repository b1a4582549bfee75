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

// The waits between two tries of an object that is set aside: the first one,
// which doubles with each refusal, and the longest.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// unit is the least that is set aside by itself: a chain, a set or map, or one
// entry of a map. A set with one bad member is set aside as a whole, since what
// a set with a member less decides depends on who asks it.
type unit struct {
	kind  unitKind
	name  string
	entry model.Member // of entries
}

type unitKind uint8

// The kinds, in the order in which they are tried: what rules refer to comes
// before them. The zero value is the table, which cannot be set aside.
const (
	setUnit unitKind = iota + 1
	chainUnit
	entryUnit
)

func (u unit) compare(o unit) int {
	return cmp.Or(cmp.Compare(u.kind, o.kind), cmp.Compare(u.name, o.name), u.entry.Compare(o.entry))
}

// standing says what of a unit is to be in the kernel.
type standing uint8

const (
	// programmed: as wanted.
	programmed standing = iota
	// held: as the kernel has it, whatever that is.
	held
	// closed: a chain is one rule that drops, an entry leads to a drop.
	closed
	// absent: not even that is accepted, so nothing may rely on the unit: the
	// chains that refer to it stand closed, the entries that lead to it drop.
	// What the kernel may have of it stays, unless it is an entry. A set is
	// never in between.
	absent
)

// quarantine is what is set aside.
type quarantine struct {
	now     func() time.Time
	refused map[unit]*refusal
	// resting are units that wait for their turn in a search.
	resting map[unit]standing
	// causes has for each chain that stands closed why.
	causes map[string][]unit
	// reopening are chains that stand closed because of what is not refused any
	// more.
	reopening map[string]struct{}
	// round counts the Applies: refusals in the same one are one attempt.
	round int
}

// refusal is why a unit is set aside, and until when.
type refusal struct {
	object, rule, reason string
	standing             standing
	// removal tells that the unit is not wanted, but cannot be deleted.
	removal bool
	// trying tells that its wanted content is being tried.
	trying bool
	// path tells that the fault is how chains lead to one another, a loop or a depth,
	// which shows only with those that lead to this one.
	path        bool
	since, next time.Time
	attempts    int
	round       int
	// change is the count of changes that it was refused at, verdict the wanted
	// one of an entry.
	change  uint64
	verdict tables.Action
}

func newQuarantine() quarantine {
	return quarantine{now: time.Now, refused: map[unit]*refusal{}, resting: map[unit]standing{}, causes: map[string][]unit{}, reopening: map[string]struct{}{}}
}

// idle reports whether everything is to be programmed as wanted, and is not
// otherwise in the kernel.
func (q *quarantine) idle() bool { return len(q.refused)+len(q.resting)+len(q.causes) == 0 }

// standing returns what of the unit is to be in the kernel, going by the unit
// alone.
func (q *quarantine) standing(u unit) standing {
	if r := q.refused[u]; r != nil && !r.trying {
		return r.standing
	}
	return q.resting[u]
}

// left reports whether what the kernel has of a chain or set is left alone.
func (q *quarantine) left(kind unitKind, name string) bool {
	s := q.standing(unit{kind: kind, name: name})
	return s == held || s == absent
}

// setAside takes the unit of an error out of what is to be programmed. It
// returns an error if the unit has no lower standing than it has already, or if
// it cannot be set aside: base chains see the traffic of the whole host, so
// neither they nor what they rely on stand closed.
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
		// Neither with a verdict nor without: its map cannot be trusted.
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

// first returns the standing of a unit whose content is refused.
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

// lower returns the standing of a unit after the kernel has refused what was
// just planned of it.
func (t *Table) lower(u unit) standing {
	c, s := t.chains[u.name], t.sets[u.name]
	replaced := u.kind == chainUnit && c != nil && c.standIn != nil ||
		u.kind == entryUnit && s != nil && s.members.aside[u.entry] == closed
	if replaced {
		return absent
	}
	return u.first()
}

// reliesOn returns the base chain that would be concerned if the unit had this
// standing, or "".
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

// give has the wanted content of the unit tried.
func (t *Table) give(u unit) {
	if r := t.quarantine.refused[u]; r != nil {
		r.trying = true
	}
	delete(t.quarantine.resting, u)
	t.touchUnit(u)
}

// rest takes back what give gave. s is for units that are not refused.
func (t *Table) rest(u unit, s standing) {
	if r := t.quarantine.refused[u]; r != nil {
		r.trying = false
	} else {
		t.quarantine.resting[u] = s
	}
	t.touchUnit(u)
}

// accepted notes that the kernel has taken what was tried. Chains that ask for it
// stand closed still: they are opened apart from it, so that it is not blamed for
// what is wrong with one of them.
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

// begin starts a round. What is not wanted any more, or wanted again that could
// not be deleted, is forgotten; so is what a base chain has come to rely on, which
// has to be accepted at once.
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

// end leaves nothing half tried behind, if a round ends before its time.
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

// wants reports whether the unit is wanted. A set that has members counts: it is
// refused because it is not wanted otherwise.
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
