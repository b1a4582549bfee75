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

// Switch is what a FlowTable programs. *Conn is one.
type Switch interface {
	// Bundle makes all changes or none; an error of the sequence makes it none.
	Bundle(ctx context.Context, mods iter.Seq2[FlowMod, error]) error
	// Dump reads the flows whose cookie has the owner.
	Dump(ctx context.Context, owner uint16) ([]Installed, error)
	// Monitor tells of changes that others make; see Conn.
	Monitor(ctx context.Context, notify func(changes []FlowChange, lost bool)) error
	// Barrier returns when the switch has dealt with what came before.
	Barrier(ctx context.Context) error
	// Err returns why the connection ended, nil while it has not.
	Err() error
}

// Result says what an Apply did.
type Result struct {
	// Messages is the number of flow mods sent.
	Messages int
	// Added and Deleted count them by kind; a replaced flow counts as added.
	Added, Deleted int
	// FullRead tells that all flows were read first.
	FullRead bool
	// Repaired are the foreign changes that were undone, sorted.
	Repaired []tables.Repair
}

// ConflictError says that two wanted flows have equal table, priority and
// match, but different actions: only one could be in force.
type ConflictError struct {
	Keys  [2]string
	Flows [2]Flow
}

// Error names both flows and the groups they belong to.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflicting flows: %s: %s; %s: %s", e.Keys[0], e.Flows[0], e.Keys[1], e.Flows[1])
}

// FlowTable holds the wanted flows of one owner, in groups, beside those known
// to be installed, and sends the difference. It keeps digests, not flows: a
// group is rendered again when one of its flows is sent. It is not safe for
// concurrent use, apart from Watch.
type FlowTable struct {
	digester
	// mu guards what follows against the goroutines of Watch and of the
	// connection. It is not held while the switch is asked for anything.
	mu sync.Mutex
	sw Switch
	// synced says that the states tell what the switch has, trusted that they
	// once did: what then differs was changed by somebody else.
	synced, trusted bool
	// alive is when the switch last answered.
	alive time.Time
	// monitored says that the switch was asked to tell of changes, deaf why it
	// does not, lost that it had to skip some.
	monitored bool
	deaf      error
	deafened  chan struct{}
	lost      bool
	// changed is called when something is heard. heard is what the next Apply
	// takes up, damage what it did take up and will tell when it is undone.
	changed func()
	heard   map[identity]news
	damage  map[string]damage

	groups map[string]*group
	states map[identity]state
	// rivals are the claims beyond the first to one identity: nearly always
	// none.
	rivals map[identity][]claim
	// cookies are those of the installed flows.
	cookies multiset
	wanted  int
	// touched are the identities whose state changed since the last Apply,
	// some of them more than once.
	touched []identity
	last    last
}

// group is what one SetFlows set.
type group struct {
	key     string
	render  func() []Flow
	entries []entry
}

// entry is what is kept of a flow.
type entry struct {
	id     identity
	cookie uint64
	// rest is what the hash of the content has beyond the cookie.
	rest uint64
}

// claim is one group's wish for an identity.
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

// state is what is wanted and known of an identity.
type state struct {
	// claim has no group if nobody wants the flow.
	claim
	table uint8
	// tampered says that what is installed is not what its cookie tells.
	tampered bool
	// installed is the cookie of the installed flow, zero if there is none.
	installed uint64
	// has is what the hash of the installed content has beyond the cookie.
	has uint64
}

// right reports whether the switch has what is wanted.
func (s state) right() bool {
	if s.group == nil {
		return s.installed == 0
	}
	return s.installed == s.cookie() && s.has == s.rest() && !s.tampered
}

// NewFlowTable returns an empty table for the flows whose cookies have an
// owner in their upper 16 bits: flows of others are left alone, whatever they
// are. The version is the pipeline's: when it changes, every flow is replaced.
func NewFlowTable(owner uint16, version uint8) *FlowTable {
	return &FlowTable{
		digester: digester{owner: owner, version: version},
		groups:   map[string]*group{},
		states:   map[identity]state{},
		rivals:   map[identity][]claim{},
		heard:    map[identity]news{},
		damage:   map[string]damage{},
		deafened: make(chan struct{}, 1),
		cookies:  multiset{once: map[uint64]struct{}{}, more: map[uint64]int{}},
	}
}

// Connect makes sw the switch to program, after the first dial and after each
// reconnect. What it has is unknown: the next Apply reads it back. That goes for
// the same switch, too, but what then differs is a repair.
func (t *FlowTable) Connect(sw Switch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.synced = false
	if t.sw == sw {
		return
	}
	t.sw, t.trusted, t.monitored, t.deaf, t.lost = sw, false, false, nil, false
	clear(t.heard)
	clear(t.damage)
}

// Len returns the number of wanted flows.
func (t *FlowTable) Len() int { return t.wanted }

// SetFlows makes what render returns the wanted flows of a group, in place of
// those it had. It is called at once, and again whenever flows of the group are
// sent; it returns the same flows each time until the group is set again.
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
		t.rivals[id] = append(t.rivals[id], c)
	} else {
		s.claim, s.table = c, table
		t.states[id] = s
		t.wanted++
	}
	t.touched = append(t.touched, id)
}

func (t *FlowTable) release(id identity, c claim) {
	t.touched = append(t.touched, id)
	s := t.states[id]
	rivals := t.rivals[id]
	switch {
	case s.claim != c:
		rivals = slices.DeleteFunc(rivals, func(r claim) bool { return r == c })
	case len(rivals) > 0:
		s.claim = rivals[0]
		rivals = slices.Delete(rivals, 0, 1)
	default:
		s.claim = claim{}
		t.wanted--
	}
	t.states[id] = s
	if len(rivals) > 0 {
		t.rivals[id] = rivals
	} else {
		delete(t.rivals, id)
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

// Apply brings the switch to the wanted flows in one bundle. The first time,
// and after Connect, it reads the installed flows back: what is there already
// is not sent again, flows of ours that nobody wants go, and flows with foreign
// cookies stay. After that it sends only differences, and nothing when there
// are none.
//
// A *ConflictError or *BundleError leaves the switch as it was; the wanted
// flows stay wanted, so the owner removes the group named and applies again.
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

// silence is after how long without an answer the switch is asked for one: a
// switch that hangs tells of no changes either.
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
	// What the switch has now is known only if it refused the bundle.
	if refused := new(BundleError); err != nil && !errors.As(err, &refused) {
		t.synced, t.trusted = false, false
	}
	return err
}

// conflict returns an error if two groups disagree about an identity.
func (t *FlowTable) conflict() error {
	var found []claim
	for id, rivals := range t.rivals {
		first := t.states[id].claim
		for _, r := range rivals {
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
