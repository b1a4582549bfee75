package openflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Switch is what a FlowTable programs. *Conn is one.
type Switch interface {
	Bundle(ctx context.Context, mods []FlowMod) error
	Dump(ctx context.Context) ([]Installed, error)
}

// Result counts what an Apply did.
type Result struct {
	// Messages is the number of flow mods sent.
	Messages int
	// Added and Deleted count them by kind; a replaced flow counts as added.
	Added, Deleted int
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

// FlowTable holds the wanted flows of a bridge, in groups, beside those known
// to be installed, and sends the difference. It is not safe for concurrent
// use: its owner is the driver's loop.
type FlowTable struct {
	version uint8
	sw      Switch
	// synced says that installed is what the switch has.
	synced    bool
	groups    map[string][]entry
	wanted    map[string][]claim
	installed map[string]entry
	// touched are the identities whose claims changed since the last Apply.
	touched map[string]struct{}
}

// entry is a flow with its identity and cookie.
type entry struct {
	flow   Flow
	id     string
	cookie uint64
}

// claim is one group's wish for an identity.
type claim struct {
	key string
	entry
}

// NewFlowTable returns an empty table. The version is the pipeline's: when it
// changes, every flow is replaced.
func NewFlowTable(version uint8) *FlowTable {
	return &FlowTable{
		version:   version,
		groups:    map[string][]entry{},
		wanted:    map[string][]claim{},
		installed: map[string]entry{},
		touched:   map[string]struct{}{},
	}
}

// Connect makes sw the switch to program, after the first dial and after each
// reconnect. What it has is unknown: the next Apply reads it back.
func (t *FlowTable) Connect(sw Switch) { t.sw, t.synced = sw, false }

// Len returns the number of wanted flows.
func (t *FlowTable) Len() int { return len(t.wanted) }

// SetFlows makes flows the wanted ones of a group, in place of those it had.
func (t *FlowTable) SetFlows(key string, flows []Flow) {
	entries := make([]entry, len(flows))
	for i, f := range flows {
		entries[i] = entry{f, f.id(), cookie(t.version, f)}
	}
	old := t.groups[key]
	same := func(a, b entry) bool { return a.id == b.id && a.cookie == b.cookie }
	if _, known := t.groups[key]; known && slices.EqualFunc(old, entries, same) {
		return
	}
	t.RemoveFlows(key)
	for _, e := range entries {
		t.wanted[e.id] = append(t.wanted[e.id], claim{key, e})
		t.touched[e.id] = struct{}{}
	}
	t.groups[key] = entries
}

// RemoveFlows removes a group.
func (t *FlowTable) RemoveFlows(key string) {
	for _, e := range t.groups[key] {
		claims := slices.DeleteFunc(t.wanted[e.id], func(c claim) bool { return c.key == key })
		if len(claims) == 0 {
			delete(t.wanted, e.id)
		} else {
			t.wanted[e.id] = claims
		}
		t.touched[e.id] = struct{}{}
	}
	delete(t.groups, key)
}

// Apply brings the switch to the wanted flows in one bundle. The first time,
// and after Connect, it reads the installed flows back and reconciles by
// cookie: what is there already is not sent again, flows of ours that nobody
// wants go, and flows with foreign cookies stay. After that it sends only
// differences, and nothing when there are none.
//
// A *ConflictError or *BundleError leaves the switch as it was; the wanted
// flows stay wanted, so the owner removes the group named and applies again.
func (t *FlowTable) Apply(ctx context.Context) (Result, error) {
	if t.sw == nil {
		return Result{}, errors.New("openflow: not connected")
	}
	var stale []FlowMod
	if !t.synced {
		var err error
		if stale, err = t.resync(ctx); err != nil {
			return Result{}, err
		}
	}
	mods, err := t.difference()
	if err != nil {
		t.synced = t.synced && len(stale) == 0
		return Result{}, err
	}
	mods = append(stale, mods...)
	if err := t.sw.Bundle(ctx, mods); err != nil {
		// What the switch has now is known only if it refused the bundle, and
		// the stale flows are known only to the dump.
		if refused := new(BundleError); !errors.As(err, &refused) || len(stale) > 0 {
			t.synced = false
		}
		return Result{}, err
	}
	t.commit()
	return count(mods), nil
}

// resync reads the switch and rebuilds installed from it. It returns the
// deletions of flows of ours that nobody wants.
func (t *FlowTable) resync(ctx context.Context) ([]FlowMod, error) {
	flows, err := t.sw.Dump(ctx)
	if err != nil {
		return nil, err
	}
	present := make(map[Installed]bool, len(flows))
	for _, f := range flows {
		if f.Ours() {
			present[f] = true
		}
	}
	clear(t.installed)
	for id, claims := range t.wanted {
		t.touched[id] = struct{}{}
		for _, c := range claims {
			have := Installed{Table: c.flow.Table, Priority: c.flow.Priority, Cookie: c.cookie}
			if _, found := present[have]; found {
				present[have] = false
				t.installed[id] = c.entry
			}
		}
	}
	var stale []FlowMod
	for f, unwanted := range present {
		if unwanted {
			stale = append(stale, FlowMod{Command: DeleteCookie, Flow: Flow{Table: f.Table}, Cookie: f.Cookie})
		}
	}
	slices.SortFunc(stale, func(a, b FlowMod) int {
		return cmp.Or(cmp.Compare(a.Flow.Table, b.Flow.Table), cmp.Compare(a.Cookie, b.Cookie))
	})
	t.synced = true
	return stale, nil
}

// difference returns the changes for the touched identities, deletions first,
// sorted.
func (t *FlowTable) difference() ([]FlowMod, error) {
	var mods []FlowMod
	ids := make([]string, 0, len(t.touched))
	for id := range t.touched {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		want, err := t.winner(id)
		if err != nil {
			return nil, err
		}
		have, installed := t.installed[id]
		switch {
		case want == nil && installed:
			mods = append(mods, FlowMod{Command: Delete, Flow: have.flow, Cookie: have.cookie})
		case want != nil && (!installed || have.cookie != want.cookie):
			mods = append(mods, FlowMod{Command: Add, Flow: want.flow, Cookie: want.cookie, Key: want.key})
		}
	}
	slices.SortStableFunc(mods, func(a, b FlowMod) int {
		return cmp.Or(
			-cmp.Compare(a.Command, b.Command),
			cmp.Compare(a.Flow.Table, b.Flow.Table),
			-cmp.Compare(a.Flow.Priority, b.Flow.Priority),
		)
	})
	return mods, nil
}

// winner returns the one flow that all claims to an identity agree on, nil
// without claims.
func (t *FlowTable) winner(id string) (*claim, error) {
	claims := t.wanted[id]
	if len(claims) == 0 {
		return nil, nil
	}
	first := slices.MinFunc(claims, func(a, b claim) int { return strings.Compare(a.key, b.key) })
	for _, c := range claims {
		if c.cookie != first.cookie {
			return nil, &ConflictError{Keys: [2]string{first.key, c.key}, Flows: [2]Flow{first.flow, c.flow}}
		}
	}
	return &first, nil
}

// commit records that the switch has what is wanted.
func (t *FlowTable) commit() {
	for id := range t.touched {
		if claims := t.wanted[id]; len(claims) > 0 {
			t.installed[id] = claims[0].entry
		} else {
			delete(t.installed, id)
		}
	}
	// A new map: clearing one that held a first load costs as much every time.
	t.touched = map[string]struct{}{}
}

func count(mods []FlowMod) Result {
	r := Result{Messages: len(mods)}
	for _, m := range mods {
		if m.Command == Add {
			r.Added++
		} else {
			r.Deleted++
		}
	}
	return r
}
