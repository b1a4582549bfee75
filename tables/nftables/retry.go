package nftables

import (
	"cmp"
	"slices"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// due returns the units to try now, in order: their wait is over, or their content has
// changed.
func (q *quarantine) due() []kernel.Unit {
	if len(q.refused) == 0 {
		return nil
	}
	now := q.now()
	var out []kernel.Unit
	for u, r := range q.refused {
		if r.round != q.round && (r.Due(now) || q.changedSince(u, r)) {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, kernel.Unit.Compare)
	return out
}

// changedSince reports whether the desired content of the unit, or of an object that
// it refers to, has changed since the refusal.
func (q *quarantine) changedSince(u kernel.Unit, r *refusal) bool {
	switch u.Kind {
	case kernel.SetUnit:
		s := q.sets[u.Name]
		return s != nil && s.changed > r.change
	case kernel.EntryUnit:
		verdict := q.set(u.Name).members.desired[u.Entry]
		target := q.chains[tables.Target(verdict)]
		return verdict != r.verdict || target != nil && target.changed > r.change
	}
	c := q.chains[u.Name]
	if c == nil || c.changed > r.change || c.desired == nil {
		return c != nil && c.changed > r.change
	}
	for u := range references(c.desired.Rules) {
		if u.Kind == kernel.SetUnit && q.sets[u.Name] != nil && q.sets[u.Name].changed > r.change {
			return true
		}
		if u.Kind == kernel.ChainUnit && q.chains[u.Name] != nil && q.chains[u.Name].changed > r.change {
			return true
		}
	}
	return slices.ContainsFunc(c.desired.Asked(q.desiredChain), func(asked *tables.Chain) bool {
		return q.chains[asked.Name].changed > r.change
	})
}

// refusals lists the quarantined objects.
func (q *quarantine) refusals() []tables.Refusal {
	if len(q.refused) == 0 {
		return nil
	}
	because := map[kernel.Unit][]string{}
	for name, causes := range q.causes {
		for _, u := range causes {
			because[u] = append(because[u], name)
		}
	}
	out := make([]tables.Refusal, 0, len(q.refused))
	for u, r := range q.refused {
		refusal := tables.Refusal{
			Object: r.object, Name: u.Name, Rule: r.rule, Origin: q.originOf(u), Reason: r.reason,
			Since: r.Since, NextTry: r.Next, Attempts: r.Attempts, Closed: because[u],
		}
		slices.Sort(refusal.Closed)
		for _, name := range refusal.Closed {
			refusal.ClosedOf = append(refusal.ClosedOf, q.originOf(kernel.Unit{Kind: kernel.ChainUnit, Name: name}))
		}
		out = append(out, refusal)
	}
	slices.SortFunc(out, func(a, b tables.Refusal) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Rule, b.Rule), slices.Compare(a.Closed, b.Closed))
	})
	return out
}
