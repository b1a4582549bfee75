package nftables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Apply programs what is wanted in one transaction, or in as few as it takes
// if it is more than the kernel takes at once. It sends nothing if nothing
// differs.
//
// On an error the kernel holds what it held before (of a load in several
// transactions: those before the refused one, none of which has a new base
// chain), and the next Apply reads the table in full. The error is, or
// contains, an ObjectError if it concerns one object.
func (t *Table) Apply(ctx context.Context) (tables.Result, error) {
	start := time.Now()
	result, err := t.apply(ctx)
	result.Rules, result.Elements = t.rules, t.elements
	result.Duration = time.Since(start)
	if err == nil {
		return result, nil
	}
	t.known = false
	if t.conn != nil {
		// What is still in the socket belongs to the failed transaction.
		err = errors.Join(err, t.conn.close())
		t.conn = nil
	}
	return result, fmt.Errorf("apply to table inet %s: %w", t.options.Table, err)
}

func (t *Table) apply(ctx context.Context) (tables.Result, error) {
	var result tables.Result
	if err := ctx.Err(); err != nil {
		return result, err
	}
	if err := t.validate(); err != nil {
		return result, err
	}
	if err := t.connect(); err != nil {
		return result, err
	}
	if !t.known {
		result.FullRead = true
		state, err := t.conn.read(t.options.Table)
		if err != nil {
			return result, err
		}
		t.adopt(state)
		t.known = true
	}
	p := t.plan()
	batches := chunks(p.head, p.tail, t.limit)
	for _, ops := range batches {
		if err := ctx.Err(); err != nil {
			return result, err
		}
		if err := t.conn.flush(ops); err != nil {
			return result, err
		}
		result.Messages += len(ops)
	}
	result.RulesAdded, result.RulesDeleted = p.result.RulesAdded, p.result.RulesDeleted
	result.ElementsAdded, result.ElementsDeleted = p.result.ElementsAdded, p.result.ElementsDeleted
	t.commit(p)
	return result, nil
}

// adopt makes the state what the kernel is known to hold, and marks
// everything for comparison.
func (t *Table) adopt(state *kernelState) {
	t.exists = state.exists
	for name := range state.chains {
		t.chain(name)
	}
	for name, c := range t.chains {
		t.take(c, state.chains[name])
	}
	for _, s := range t.sets {
		s.have = nil
	}
	for name, k := range state.sets {
		t.set(name).have = &haveSet{shape: k.shape, reload: !k.regular}
	}
	for name := range t.chains {
		t.touchedChains.add(name)
	}
	for name, s := range t.sets {
		t.touchedSets.add(name)
		var held map[model.Member]tables.Action
		if k, ok := state.sets[name]; ok && k.shape == s.shape {
			held = k.members
		}
		s.members.rebase(held)
	}
}

// commit notes that the kernel holds what is wanted of all that was touched.
func (t *Table) commit(p *plan) {
	t.exists, t.recheck = true, false
	for name := range t.touchedChains {
		c, ok := t.chains[name]
		if !ok {
			continue
		}
		held := len(p.rules[name])
		t.rules += held - c.held
		c.have, c.held = nil, held
		if c.want != nil {
			c.have = &kernelChain{base: base(c.want.Hook), rules: t.placed(p.rules[name])}
		}
		if c.unused() {
			delete(t.chains, name)
		}
	}
	for name := range t.touchedSets {
		s, ok := t.sets[name]
		if !ok {
			continue
		}
		s.members.commit()
		held := len(s.members.want)
		t.elements += held - s.held
		s.have, s.held = nil, held
		if s.wanted {
			s.have = &haveSet{shape: s.shape}
		}
		if s.unused() {
			delete(t.sets, name)
		}
	}
	clear(t.touchedChains)
	clear(t.touchedSets)
}

// placed returns the rules with what the kernel has echoed of them. If an echo
// is missing, the next Apply reads them.
func (t *Table) placed(rules []kernelRule) []kernelRule {
	for i := range rules {
		if rules[i].handle == 0 {
			t.known = false
		}
	}
	return rules
}
