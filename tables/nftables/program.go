package nftables

import (
	"context"
	"errors"
	"slices"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// program sends the differences between desired and known state.
func (t *Table) program(ctx context.Context, result *tables.Result) error {
	p := t.planner.plan(true)
	if p.renewal.any() && p.tail.weight() > t.limit {
		p = t.planner.plan(false)
	}
	t.trusted = t.trusted && !p.rebuild
	if p.rebuild && len(t.options.Guard) == 0 { // between two transactions, nothing would drop
		p.head, p.first = append(p.first, p.head...), nil
	}
	batches := p.batches(t.limit)
	if p.rebuild && len(batches) > 1 && len(t.options.Guard) > 0 {
		raised, err := t.raiseGuard(result, kernel.Op{Kind: kernel.DeleteTable}, kernel.Op{Kind: kernel.AddTable})
		if err != nil {
			return err
		}
		t.adopt(raised)
		t.trusted = true
		p = t.planner.plan(false)
		batches = p.batches(t.limit)
	}
	if !t.modulesLoaded && len(batches) > 0 {
		if err := t.conn.Check(moduleOps(batches)); err != nil {
			return err
		}
		t.modulesLoaded = true
	}
	if len(t.quarantine.onHold) == 0 {
		t.drift.keepNeeded(p)
	}
	for _, ops := range batches {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.send(ops, result); err != nil {
			t.markPartial()
			return err
		}
		// Until all are sent, the known state is not the kernel's.
		t.trusted = false
	}
	if err := t.completeRenewal(p, result); err != nil {
		return err
	}
	result.RulesAdded += p.result.RulesAdded
	result.RulesDeleted += p.result.RulesDeleted
	result.ElementsAdded += p.result.ElementsAdded
	result.ElementsDeleted += p.result.ElementsDeleted
	t.commit(p)
	return t.removeOthers(result)
}

// commit records that the kernel has the desired state of all dirty objects.
func (t *Table) commit(p *plan) {
	t.exists, t.trusted, t.recheck = true, true, false
	for name := range t.dirtyChains {
		c, ok := t.chains[name]
		if !ok || t.quarantine.leaves(kernel.ChainUnit, name) {
			continue
		}
		held := len(p.rules[name])
		t.rules += held - c.rules
		c.rules, c.reopens, c.partial = held, false, false
		c.write(nil)
		if c.desired != nil {
			c.write(&kernel.Chain{Base: kernel.BaseOf(c.desired.Hook), Rules: p.rules[name]})
			// Without the echo of a rule, the next Apply reads it.
			t.synced = t.synced && !slices.ContainsFunc(p.rules[name], func(r kernel.Rule) bool { return r.Handle == 0 })
		}
		if c.unused() {
			delete(t.chains, name)
		}
	}
	for name := range t.dirtySets {
		s, ok := t.sets[name]
		if !ok || t.quarantine.leaves(kernel.SetUnit, name) {
			continue
		}
		held := s.members.commit()
		t.elements += held - s.count
		s.observed, s.count, s.single = nil, held, false
		if s.desired {
			s.observed = &observedSet{shape: s.shape}
		}
		if s.unused() {
			delete(t.sets, name)
		}
	}
	t.dirtyChains, t.dirtySets = names{}, names{} // cleared, they would keep the room of the first load
}

// removeOthers deletes objects of kinds that the driver never makes, in a transaction of its own: none of
// them decides anything by itself, and a refused deletion shall not stop the desired objects. The next full
// read tries again.
func (t *Table) removeOthers(result *tables.Result) error {
	for _, o := range t.others {
		err := t.send([]kernel.Op{{Kind: kernel.DeleteOther, Other: o}}, result)
		var refused *kernel.RefusedError
		switch {
		case errors.As(err, &refused):
		case err != nil:
			return err
		default:
			t.drift.damaged(objectKey{o.Noun(), o.Name}, o.Noun(), "foreign "+o.Noun(), t.drift.pending.OtherChange())
		}
	}
	t.others = nil
	return nil
}
