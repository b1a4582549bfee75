package openflow

import (
	"context"
	"iter"
	"slices"
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
	// Groups reads all groups; see Conn.
	Groups(ctx context.Context) (map[uint32][]byte, error)
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
	// Groups is the number of HashGroups sent.
	Groups int
	// FullRead is true if Apply read all flows first.
	FullRead bool
	// Repaired are the foreign changes that were undone, sorted.
	Repaired []tables.Repair
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
	hashes hashGroups
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
	// behind tells the flows that come behind others; it may be nil.
	behind func(table uint8, group string) bool
}

// NewFlowTable returns an empty table for flows with the owner in the upper 16 bits
// of the cookie. The table leaves flows of other owners alone. The version is the
// pipeline's: if it changes, every flow is replaced.
func NewFlowTable(owner uint16, version uint8) *FlowTable {
	return &FlowTable{
		digester:      digester{owner: owner, version: version},
		groups:        map[string]*group{},
		hashes:        hashGroups{},
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
	g.uses = t.hashes.use(flows) // first, so that a group in use stays known
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
	t.hashes.leave(g.uses)
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

// unlocked calls f without the lock, and holds it again afterwards, also after a
// panic: Apply's callers recover from that.
func (t *FlowTable) unlocked(f func() error) error {
	t.mu.Unlock()
	defer t.mu.Lock()
	return f()
}

// reportedChange is the last reported change of one identity.
type reportedChange struct {
	FlowChange
	at time.Time
}

// damage counts the foreign changes to a group.
type damage struct {
	tables.Drift
	noticed time.Time
}

// last is the group that is added after all others.
type last struct {
	key    string
	settle func(ctx context.Context) error
	// unsettled is true if flows of other groups were sent, or may have been, since
	// the last call of settle.
	unsettled bool
}

// observe records the switch's flow of an identity: its cookie and the rest of its
// content hash. A zero cookie means no flow.
func (t *FlowTable) observe(id identity, table uint8, cookie, rest uint64, tampered bool) {
	s := t.states[id]
	if s.installed != 0 {
		t.cookies.remove(s.installed)
	}
	if cookie != 0 {
		t.cookies.add(cookie)
	}
	s.table, s.installed, s.has, s.tampered = table, cookie, rest, tampered
	t.states[id] = s
}
