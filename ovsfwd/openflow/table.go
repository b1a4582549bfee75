package openflow

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/felixlike/felixlike/tables"
)

// Switch is the interface to the switch that a FlowTable programs. *Conn is one.
type Switch interface {
	// Bundle makes all changes or none; an error of the sequence makes it none.
	Bundle(ctx context.Context, mods iter.Seq2[FlowMod, error]) error
	// Dump reads the flows whose cookie has the owner.
	Dump(ctx context.Context, owner uint16) ([]Installed, error)
	// Monitor reports foreign changes; see Conn.
	Monitor(ctx context.Context, notify func(changes []FlowChange, lost bool)) error
	// Barrier returns when the switch has processed all earlier messages.
	Barrier(ctx context.Context) error
	// Err returns why the connection ended, nil while it has not.
	Err() error
}

// Result describes one Apply.
type Result struct {
	// Messages is the number of flow mods sent.
	Messages int
	// Added and Deleted count them by kind; a replaced flow counts as added.
	Added, Deleted int
	// FullRead is true if Apply read all flows first.
	FullRead bool
	// Repaired are the foreign changes that were undone, sorted.
	Repaired []tables.Repair
}

// ConflictError says that two desired flows have equal table, priority and
// match, but different actions: only one could be in force.
type ConflictError struct {
	Keys  [2]string
	Flows [2]Flow
}

// Error names both flows and the groups they belong to.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflicting flows: %s: %s; %s: %s", e.Keys[0], e.Flows[0], e.Keys[1], e.Flows[1])
}

// FlowTable holds the desired flows of one owner, in groups, beside those known
// to be installed, and sends the difference. It keeps digests, not flows: a
// group is rendered again when one of its flows is sent. It is not safe for
// concurrent use, apart from Watch.
type FlowTable struct {
	digester
	// mu guards the following fields against the goroutines of Watch and of the
	// connection. It is not held during an exchange with the switch.
	mu sync.Mutex
	sw Switch
	// synced: the states equal the flows in the switch. trusted: they once did, so
	// a difference is a foreign change.
	synced, trusted bool
	// alive is when the switch last answered.
	alive time.Time
	// monitored: we have asked the switch to report changes. unmonitored is the reason
	// if it does not report them; monitorFailed wakes Watch then. lost: it dropped reports.
	monitored     bool
	unmonitored   error
	monitorFailed chan struct{}
	lost          bool
	// changed is called after a reported change. reported has the changes
	// until the next Apply; damage counts those that Apply has not repaired yet.
	changed  func()
	reported map[identity]reportedChange
	damage   map[string]damage

	groups map[string]*group
	states map[identity]state
	// further are more claims to an identity that has one already. It is nearly
	// always empty.
	further map[identity][]claim
	// cookies are those of the installed flows.
	cookies multiset
	desired int
	// dirty are the identities whose state changed since the last Apply.
	// It may have duplicates.
	dirty []identity
	last  last
}

// group is the flows of one SetFlows call.
type group struct {
	key     string
	render  func() []Flow
	entries []entry
}

// entry is the digest of one flow; the flow itself is not kept.
type entry struct {
	id     identity
	cookie uint64
	// rest is 64 bits of the content's keyed hash (see secret.content).
	rest uint64
}

// claim is one group's desired flow for an identity.
type claim struct {
	group *group
	index int32
}

func (c claim) cookie() uint64 { return c.group.entries[c.index].cookie }

func (c claim) rest() uint64 { return c.group.entries[c.index].rest }

func (c claim) flow() (Flow, error) {
	flows, err := c.group.flows()
	if err != nil {
		return Flow{}, err
	}
	return flows[c.index], nil
}

// state is the desired and the observed flow of an identity.
type state struct {
	// claim has no group if no flow is desired.
	claim
	table uint8
	// tampered: the installed flow's content does not have the hash in its cookie.
	tampered bool
	// installed is the cookie of the installed flow, zero if there is none.
	installed uint64
	// has is the rest of the hash of the installed flow's content (see entry.rest).
	has uint64
}

// right reports whether the switch has the desired flow.
func (s state) right() bool {
	if s.group == nil {
		return s.installed == 0
	}
	return s.installed == s.cookie() && s.has == s.rest() && !s.tampered
}

// NewFlowTable returns an empty table for flows with the owner in the upper 16 bits
// of the cookie. The table leaves flows of other owners alone. The version is the
// pipeline's: if it changes, every flow is replaced.
func NewFlowTable(owner uint16, version uint8) *FlowTable {
	return &FlowTable{
		digester:      digester{owner: owner, version: version},
		groups:        map[string]*group{},
		states:        map[identity]state{},
		further:       map[identity][]claim{},
		reported:      map[identity]reportedChange{},
		damage:        map[string]damage{},
		monitorFailed: make(chan struct{}, 1),
		cookies:       multiset{once: map[uint64]struct{}{}, more: map[uint64]int{}},
	}
}

// Connect makes sw the switch to program, after the first dial and after each
// reconnect. The next Apply reads back its flows. If sw is the present switch, Apply
// counts differences as foreign changes.
func (t *FlowTable) Connect(sw Switch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.synced = false
	if t.sw == sw {
		return
	}
	t.sw, t.trusted, t.monitored, t.unmonitored, t.lost = sw, false, false, nil, false
	clear(t.reported)
	clear(t.damage)
}

// Len returns the number of desired flows.
func (t *FlowTable) Len() int { return t.desired }

// SetFlows replaces the desired flows of a group with those that render returns.
// SetFlows calls render at once, and Apply calls it again whenever it sends flows of
// the group. render must return the same flows each time until the group is set again.
func (t *FlowTable) SetFlows(key string, render func() []Flow) {
	flows := render()
	g := &group{key: key, render: render, entries: make([]entry, len(flows))}
	for i, f := range flows {
		g.entries[i] = t.digest(f)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.groups[key]; old != nil && slices.Equal(old.entries, g.entries) {
		old.render = render
		return
	}
	t.remove(key)
	for i, e := range g.entries {
		t.claim(e.id, flows[i].Table, claim{g, int32(i)})
	}
	t.groups[key] = g
}

// RemoveFlows removes a group.
func (t *FlowTable) RemoveFlows(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(key)
}

func (t *FlowTable) remove(key string) {
	g := t.groups[key]
	if g == nil {
		return
	}
	for i, e := range g.entries {
		t.release(e.id, claim{g, int32(i)})
	}
	delete(t.groups, key)
}

func (t *FlowTable) claim(id identity, table uint8, c claim) {
	s := t.states[id]
	if s.group != nil {
		t.further[id] = append(t.further[id], c)
	} else {
		s.claim, s.table = c, table
		t.states[id] = s
		t.desired++
	}
	t.dirty = append(t.dirty, id)
}

func (t *FlowTable) release(id identity, c claim) {
	t.dirty = append(t.dirty, id)
	s := t.states[id]
	further := t.further[id]
	switch {
	case s.claim != c:
		further = slices.DeleteFunc(further, func(r claim) bool { return r == c })
	case len(further) > 0:
		s.claim = further[0]
		further = slices.Delete(further, 0, 1)
	default:
		s.claim = claim{}
		t.desired--
	}
	t.states[id] = s
	if len(further) > 0 {
		t.further[id] = further
	} else {
		delete(t.further, id)
	}
}

// flows renders the group.
func (g *group) flows() ([]Flow, error) {
	flows := g.render()
	if len(flows) != len(g.entries) {
		return nil, fmt.Errorf("flows of %s: %d were set and %d are rendered", g.key, len(g.entries), len(flows))
	}
	return flows, nil
}

// Apply brings the switch to the desired flows in one bundle. The first time, and
// after Connect, it reads the installed flows back. It does not send installed flows
// again, deletes our flows that are not desired, and leaves flows with foreign cookies
// alone. Later it sends only differences, and no bundle if there are none.
//
// A *ConflictError or *BundleError leaves the switch as it was. The flows stay
// desired, so the owner removes the named group and applies again.
func (t *FlowTable) Apply(ctx context.Context) (Result, error) {
	if t.sw == nil {
		return Result{}, errors.New("openflow: not connected")
	}
	if err := t.sw.Err(); err != nil {
		return Result{}, fmt.Errorf("openflow connection lost: %w", err)
	}
	if !t.monitored {
		if err := t.monitor(ctx); err != nil {
			return Result{}, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.takeUp()
	var result Result
	if !t.synced {
		if err := t.resync(ctx); err != nil {
			return result, err
		}
		result.FullRead = true
	}
	if err := t.conflict(); err != nil {
		return result, err
	}
	changes, last := t.split(t.changes())
	if err := t.send(ctx, changes); err != nil {
		return result, err
	}
	t.commit(changes)
	result.count(changes)
	if err := t.sendLast(ctx, changes, last, &result); err != nil {
		return result, err
	}
	result.Repaired = t.repaired()
	return result, nil
}

// silence is the time without a reply after which Apply sends a barrier: a hung
// switch reports no changes either.
const silence = time.Second

// unlocked calls f without the lock, and holds it again afterwards, also after a
// panic: Apply's callers recover from that.
func (t *FlowTable) unlocked(f func() error) error {
	t.mu.Unlock()
	defer t.mu.Lock()
	return f()
}

// send makes the changes. The lock is not held meanwhile.
func (t *FlowTable) send(ctx context.Context, changes []change) (err error) {
	if len(changes) == 0 && time.Since(t.alive) < silence {
		return nil
	}
	err = t.unlocked(func() error {
		if len(changes) == 0 {
			return t.sw.Barrier(ctx)
		}
		return t.sw.Bundle(ctx, t.mods(changes))
	})
	if err == nil {
		t.alive = time.Now()
	}
	// After an error the switch's flows are known only if it refused the bundle.
	if refused := new(BundleError); err != nil && !errors.As(err, &refused) {
		t.synced, t.trusted = false, false
	}
	return err
}

// conflict returns an error if two groups disagree about an identity.
func (t *FlowTable) conflict() error {
	var found []claim
	for id, further := range t.further {
		first := t.states[id].claim
		for _, r := range further {
			if r.cookie() == first.cookie() && r.rest() == first.rest() {
				continue
			}
			pair := []claim{first, r}
			slices.SortStableFunc(pair, claim.compare)
			if found == nil || slices.CompareFunc(pair, found, claim.compare) < 0 {
				found = pair
			}
		}
	}
	if found == nil {
		return nil
	}
	e := &ConflictError{}
	for i, c := range found {
		flow, err := c.flow()
		if err != nil {
			return err
		}
		e.Keys[i], e.Flows[i] = c.group.key, flow
	}
	return e
}

func (c claim) compare(d claim) int {
	if order := strings.Compare(c.group.key, d.group.key); order != 0 {
		return order
	}
	return int(c.index) - int(d.index)
}
