package openflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/tables"
)

// Watch calls changed after each foreign change to flows of the table's owner, also
// if other flows replaced them, until ctx ends. The next Apply repairs the flows.
// Watch returns an error if the switch does not report changes.
func (t *FlowTable) Watch(ctx context.Context, changed func()) error {
	t.mu.Lock()
	t.changed = changed
	pending := len(t.reported) > 0
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.changed = nil
		t.mu.Unlock()
	}()
	if pending {
		changed()
	}
	for {
		t.mu.Lock()
		err := t.unmonitored
		t.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.monitorFailed:
		}
	}
}

// monitor subscribes to the switch's reports of changes. It runs before the full
// read, so that no change between the two is missed.
func (t *FlowTable) monitor(ctx context.Context) error {
	sw := t.sw
	err := sw.Monitor(ctx, func(changes []FlowChange, lost bool) { t.record(sw, changes, lost) })
	if !errors.Is(err, ErrNoMonitor) {
		t.monitored = err == nil
		return err
	}
	t.monitored = true
	t.mu.Lock()
	t.unmonitored = err
	t.mu.Unlock()
	select {
	case t.monitorFailed <- struct{}{}:
	default: // the reason is there already
	}
	return nil
}

// record records reported changes for the next Apply. The connection's goroutine calls
// it. A report may be late, and be about a flow that Apply has replaced since: then
// the flow is sent once more.
func (t *FlowTable) record(sw Switch, changes []FlowChange, lost bool) {
	t.mu.Lock()
	if sw != t.sw {
		t.mu.Unlock()
		return
	}
	now := time.Now()
	notify := lost
	t.lost = t.lost || lost
	for _, c := range changes {
		_, known := t.states[c.id]
		_, reported := t.reported[c.id] // the state known for it is outdated
		if !known && !reported && !t.owns(c.Cookie) {
			continue
		}
		t.reported[c.id] = reportedChange{c, now}
		notify = true
	}
	changed := t.changed
	t.mu.Unlock()
	if notify && changed != nil {
		changed()
	}
}

func (t *FlowTable) owns(cookie uint64) bool { return cookie>>ownerShift == uint64(t.owner) }

// takeUp updates the states by the reported changes.
func (t *FlowTable) takeUp() {
	for id, n := range t.reported {
		t.differs(id, n)
		if g := t.states[id].group; n.Removed && g != nil {
			t.hashes.doubt(g.uses) // who deletes a HashGroup deletes the flows that use it
		}
		cookie := n.Cookie
		if n.Removed || !t.owns(cookie) {
			cookie = 0
		}
		t.observe(id, n.Table, cookie, n.rest, n.tampered)
		t.dirty = append(t.dirty, id)
	}
	clear(t.reported)
	t.synced = t.synced && !t.lost
	t.lost = false
}

// differs counts a reported flow as a foreign change, unless the report agrees with
// the known state.
func (t *FlowTable) differs(id identity, n reportedChange) {
	s := t.states[id]
	if n.Removed && (s.installed == 0 || s.group == nil) || !n.Removed && s.installed == n.Cookie && s.has == n.rest && s.tampered == n.tampered {
		return
	}
	name := fmt.Sprintf("table=%d,priority=%d,cookie=%#x", n.Table, n.Priority, n.Cookie)
	if s.group != nil {
		name = s.group.key
	}
	d, again := t.damage[name]
	if !again {
		d = damage{tables.Drift{Part: "flow", Parts: "flows"}, n.at}
	}
	switch {
	case n.Removed:
		d.Missing++
	case s.group != nil:
		d.Changed++
	default:
		d.Foreign++
	}
	t.damage[name] = d
}

// repaired returns the foreign changes that are undone, and forgets them.
func (t *FlowTable) repaired() []tables.Repair {
	var all []tables.Repair
	for name, d := range t.damage {
		all = append(all, tables.Repair{Object: d.Part, Name: name, What: d.String(), Noticed: d.noticed})
	}
	clear(t.damage)
	slices.SortFunc(all, func(a, b tables.Repair) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
