package nftables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// Apply programs the desired state in one transaction, or in as few as possible if the
// kernel does not take all at once. Without a difference it sends nothing. It repairs
// the foreign changes that Watch has received in the same transaction. If another
// program commits first, it reads again.
//
// After an error the kernel has its former state (of a load in several transactions:
// with those before the refused one, none of which has a new base chain), and the next
// Apply reads the table in full. The error is, or contains, an ObjectError if it
// concerns one object.
func (t *Table) Apply(ctx context.Context) (tables.Result, error) {
	start := time.Now()
	result, err := t.apply(ctx)
	result.Rules, result.Elements = t.rules, t.elements
	result.Duration = time.Since(start)
	if err == nil {
		return result, nil
	}
	t.known = false
	// What is still in the socket belongs to the failed transaction.
	err = errors.Join(err, t.disconnect())
	return result, fmt.Errorf("apply to table inet %s: %w", t.options.Table, err)
}

func (t *Table) apply(ctx context.Context) (tables.Result, error) {
	var result tables.Result
	if err := ctx.Err(); err != nil {
		return result, err
	}
	t.begin()
	defer t.end()
	err := t.settle(ctx, &result)
	if err == nil {
		result.Repaired = t.repaired()
		err = t.retry(ctx, &result)
	}
	result.Refused = t.refusals()
	return result, err
}

// program sends the differences between desired and known state.
func (t *Table) program(ctx context.Context, result *tables.Result) error {
	p := t.plan()
	batches := chunks(p.head, p.tail, t.limit)
	if p.rebuild && len(batches) > 1 && len(t.options.Guard) > 0 {
		raised, err := t.raiseGuard(result, kernel.Op{Kind: kernel.DeleteTable}, kernel.Op{Kind: kernel.AddTable})
		if err != nil {
			return err
		}
		t.adopt(raised)
		t.trusted = true
		p = t.plan()
		batches = chunks(p.head, p.tail, t.limit)
	}
	if len(t.quarantine.resting) == 0 {
		t.keepNeeded(p)
	}
	for _, ops := range batches {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.send(ops, result); err != nil {
			t.hollow()
			return err
		}
		// Until all are sent, the known state is not the kernel's.
		t.trusted = false
	}
	result.RulesAdded += p.result.RulesAdded
	result.RulesDeleted += p.result.RulesDeleted
	result.ElementsAdded += p.result.ElementsAdded
	result.ElementsDeleted += p.result.ElementsDeleted
	t.commit(p)
	return t.removeOthers(result)
}

// hollow marks the chains that the plan was to create: the kernel may have some by now.
func (t *Table) hollow() {
	for name := range t.touchedChains {
		if c := t.chains[name]; c != nil && c.want != nil && c.have == nil {
			c.hollow = true
		}
	}
}

// send commits the operations.
func (t *Table) send(ops []kernel.Op, result *tables.Result) error {
	if err := t.conn.Commit(ops); err != nil {
		var refused *kernel.RefusedError
		t.trusted = t.trusted && errors.As(err, &refused)
		return err
	}
	t.log.Committed()
	t.generation++
	result.Messages += len(ops)
	return nil
}

// adopt replaces the known state of the kernel, and marks every object dirty.
func (t *Table) adopt(state *kernel.State) {
	t.exists, t.others = state.Exists, state.Others
	for name := range state.Chains {
		t.chain(name)
	}
	for name := range state.Sets {
		t.set(name)
	}
	for name, c := range t.chains {
		c.take(state.Chains[name])
		t.touchedChains.add(name)
	}
	for name, s := range t.sets {
		s.adopt(state.Sets[name])
		t.touchedSets.add(name)
	}
}

// commit records that the kernel has the desired state of all dirty objects.
func (t *Table) commit(p *plan) {
	t.exists, t.trusted, t.recheck = true, true, false
	for name := range t.touchedChains {
		c, ok := t.chains[name]
		if !ok || t.quarantine.left(kernel.ChainUnit, name) {
			continue
		}
		held := len(p.rules[name])
		t.rules += held - c.held
		c.held, c.reopens, c.hollow = held, false, false
		c.write(nil)
		if c.want != nil {
			c.write(&kernel.Chain{Base: kernel.BaseOf(c.want.Hook), Rules: t.placed(p.rules[name])})
		}
		if c.unused() {
			delete(t.chains, name)
		}
	}
	for name := range t.touchedSets {
		s, ok := t.sets[name]
		if !ok || t.quarantine.left(kernel.SetUnit, name) {
			continue
		}
		held := s.members.commit()
		t.elements += held - s.held
		s.have, s.held, s.single = nil, held, false
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

// placed returns the rules with the handles and digests of the kernel's echo. If an
// echo is missing, the next Apply reads them.
func (t *Table) placed(rules []kernel.Rule) []kernel.Rule {
	for i := range rules {
		if rules[i].Handle == 0 {
			t.known = false
		}
	}
	return rules
}

// removeOthers deletes what is never ours, in a transaction of its own: none of
// it decides anything by itself, and nothing that is wanted shall fail because
// the kernel does not let go of it. What is refused is tried again at the next
// full read.
func (t *Table) removeOthers(result *tables.Result) error {
	for _, o := range t.others {
		err := t.send([]kernel.Op{{Kind: kernel.DeleteOther, Other: o}}, result)
		var refused *kernel.RefusedError
		switch {
		case errors.As(err, &refused):
		case err != nil:
			return err
		default:
			t.damaged(objectKey{o.Noun(), o.Name}, o.Noun(), "foreign "+o.Noun(), t.pending.OtherChange())
		}
	}
	t.others = nil
	return nil
}
