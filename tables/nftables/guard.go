package nftables

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/tables"
)

// completeWait is how long the end of a foreign transaction is waited for
// before the guard is raised: a small one is told in well under a millisecond.
// completeLimit is how long it is waited for behind the guard.
const (
	completeWait  = 2 * time.Millisecond
	completeLimit = time.Second
)

// closeGap does at once what keeps pods from being without policy until all is
// put right. A table that was made dormant is woken. While a foreign change is
// so large that it takes time to learn what it was (a flush of all chains), the
// guard stands; the news are completed with the rest of it. It reports whether
// the table exists; one that does not is made with the guard by learnAll.
func (t *Table) closeGap(fresh *news, result *tables.Result) (exists bool, err error) {
	state, err := t.conn.readTable(t.options.Table)
	if err != nil || !state.exists {
		return false, err
	}
	if state.dormant {
		if err := t.wake(result); err != nil {
			return true, err
		}
	}
	if !t.known || fresh.lost {
		return true, nil
	}
	complete := t.notes.complete(completeWait)
	fresh.merge(t.notes.take())
	if len(t.options.Guard) > 0 && (!complete || fresh.sweeping()) {
		if err := t.raiseHere(result); err != nil {
			return true, err
		}
		t.notes.complete(completeLimit)
		fresh.merge(t.notes.take())
	}
	t.heard.merge(*fresh)
	return true, nil
}

// raiseHere raises the guard beside what there is, if it does not stand yet.
func (t *Table) raiseHere(result *tables.Result) error {
	for _, want := range t.options.Guard {
		if c := t.chains[want.Name]; c != nil && (c.have != nil || c.want != nil) {
			return nil
		}
	}
	raised, err := t.raiseGuard(result)
	if err != nil {
		return err
	}
	for name, k := range raised.chains {
		t.chain(name).have = k
		t.touchedChains.add(name)
	}
	return nil
}

// raiseGuard makes the guard in a transaction of its own, which begins with the
// given operations, and returns what the kernel holds then besides what it held.
// What follows may take any number of transactions, and meanwhile the guard
// decides. Nobody wants its chains, so the plan removes them where it brings
// the base chains in their place.
func (t *Table) raiseGuard(result *tables.Result, first ...op) (*kernelState, error) {
	p := t.newPlan()
	p.tail = first
	for _, want := range t.options.Guard {
		c := &chain{name: want.Name, want: &want}
		for _, r := range want.Rules {
			c.hashes = append(c.hashes, r.Hash())
		}
		p.writeBase(c)
	}
	if err := t.send(p.tail, result); err != nil {
		return nil, fmt.Errorf("raise the guard: %w", err)
	}
	result.RulesAdded += p.result.RulesAdded
	raised := &kernelState{exists: true, chains: map[string]*kernelChain{}}
	for _, want := range t.options.Guard {
		raised.chains[want.Name] = &kernelChain{base: base(want.Hook), rules: p.rules[want.Name]}
	}
	return raised, nil
}

// wake undoes the dormant flag, in a transaction of its own: the kernel takes
// no new base chains in the one that does.
func (t *Table) wake(result *tables.Result) error {
	if err := t.send([]op{{kind: addTable}}, result); err != nil {
		return fmt.Errorf("wake the table: %w", err)
	}
	if t.trusted {
		t.damagedTable("made dormant")
	}
	return nil
}
