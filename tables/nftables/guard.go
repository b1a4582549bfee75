package nftables

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// completeWait bounds the wait for the end of another program's transaction before the
// guard is raised: the notifications of a small one take well under a millisecond.
// completeLimit bounds the further wait behind the guard.
const (
	completeWait  = 2 * time.Millisecond
	completeLimit = time.Second
)

// closeGap closes the gap without policy before the repair is complete. It wakes a
// dormant table. If a foreign change is so large that its notifications take time (a
// flush of all chains), it raises the guard and then adds the rest of the notifications
// to fresh. It reports whether the table exists; learnAll makes a missing one with the
// guard.
func (t *Table) closeGap(fresh *watch.Changes, result *tables.Result) (exists bool, err error) {
	state, err := t.conn.ReadTable(t.options.Table)
	if err != nil || !state.Exists {
		return false, err
	}
	if state.Dormant {
		if err := t.wake(result); err != nil {
			return true, err
		}
	}
	if !t.synced || fresh.Lost {
		return true, nil
	}
	complete := t.log.AwaitEnds(completeWait)
	fresh.Merge(t.log.Take())
	if len(t.options.Guard) > 0 && (!complete || fresh.NeedFullRead()) {
		if err := t.raiseHere(result); err != nil {
			return true, err
		}
		t.log.AwaitEnds(completeLimit)
		fresh.Merge(t.log.Take())
	}
	t.drift.pending.Merge(*fresh)
	return true, nil
}

// raiseHere raises the guard in the existing table, unless it is there.
func (t *Table) raiseHere(result *tables.Result) error {
	for _, want := range t.options.Guard {
		if c := t.chains[want.Name]; c != nil && (c.observed != nil || c.desired != nil) {
			return nil
		}
	}
	raised, err := t.raiseGuard(result)
	if err != nil {
		return err
	}
	for name, k := range raised.Chains {
		t.chain(name).write(k)
		t.dirtyChains.add(name)
	}
	return nil
}

// raiseGuard makes the guard in a transaction of its own, which begins with the given
// operations, and returns the objects that it added to the kernel's state. Any number
// of transactions may follow, and meanwhile the guard decides. Its chains are not
// desired, so the plan removes them in the transaction that brings the base chains.
func (t *Table) raiseGuard(result *tables.Result, first ...kernel.Op) (*kernel.State, error) {
	p := t.planner.newPlan()
	p.tail = first
	for _, want := range t.options.Guard {
		c := &chain{name: want.Name, desired: &want}
		for _, r := range want.Rules {
			c.hashes = append(c.hashes, r.Hash())
		}
		p.writeBase(c)
	}
	if err := t.send(p.tail, result); err != nil {
		return nil, fmt.Errorf("raise the guard: %w", err)
	}
	result.RulesAdded += p.result.RulesAdded
	raised := &kernel.State{Exists: true, Chains: map[string]*kernel.Chain{}}
	for _, want := range t.options.Guard {
		raised.Chains[want.Name] = &kernel.Chain{Base: kernel.BaseOf(want.Hook), Rules: p.rules[want.Name]}
	}
	return raised, nil
}

// wake undoes the dormant flag, in a transaction of its own: the kernel takes
// no new base chains in the one that does.
func (t *Table) wake(result *tables.Result) error {
	if err := t.send([]kernel.Op{{Kind: kernel.AddTable}}, result); err != nil {
		return fmt.Errorf("wake the table: %w", err)
	}
	if t.trusted {
		t.drift.damagedTable("made dormant")
	}
	return nil
}
