package iptables

import (
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// chain is one chain by name: what is wanted of it, where it has to be, and
// what the kernel holds of it there.
type chain struct {
	name   string
	want   *tables.Chain // nil: not wanted
	hashes []string      // of the wanted rules
	// leads are the chains that the wanted rules lead to, by family.
	leads map[model.Family][]string
	// refs counts the wanted rules that lead here.
	refs int
	// lives are the places from whose base chains it is reached.
	lives placeSet
	have  [places]*held
}

// held is a chain as a place holds it. The hash of a rule is empty if it is not
// one that we would write.
type held struct {
	hashes []string
	// pinned tells that rules of others lead here: the chain cannot go.
	pinned bool
}

// content is what a chain has to hold in one place.
type content struct {
	hashes []string
	rules  []tables.Rule
}

// UpdateChain wants the chain to be exactly as given.
func (t *Table) UpdateChain(want tables.Chain) {
	c := t.chain(want.Name)
	hashes := want.Hashes()
	if c.want != nil && slices.Equal(c.hashes, hashes) && sameHook(c.want.Hook, want.Hook) {
		return
	}
	leads := leadsOf(want.Rules)
	// Whom a chain asks may be another matter though it leads where it did.
	t.rereach = t.rereach || len(t.refused) > 0
	if c.want == nil || !sameHook(c.want.Hook, want.Hook) {
		// Rules that lead here may be right now, or wrong.
		t.recheck = t.recheck || c.refs > 0
		t.rereach = true
	}
	for _, f := range model.Families() {
		t.rereach = t.rereach || want.Hook != nil || !slices.Equal(c.leads[f], leads[f])
	}
	if c.want != nil {
		t.referAll(c.want.Rules, -1)
	}
	t.referAll(want.Rules, +1)
	c.want, c.hashes, c.leads = &want, hashes, leads
	t.touch(c.name)
}

// RemoveChain no longer wants the chain.
func (t *Table) RemoveChain(name string) {
	c, ok := t.chains[name]
	if !ok || c.want == nil {
		return
	}
	t.referAll(c.want.Rules, -1)
	c.want, c.hashes, c.leads = nil, nil, nil
	t.recheck = t.recheck || c.refs > 0
	t.rereach = true
	t.touch(name)
}

// chain returns the named chain, new if need be.
func (t *Table) chain(name string) *chain {
	c, ok := t.chains[name]
	if !ok {
		c = &chain{name: name}
		t.chains[name] = c
	}
	return c
}

// touch marks the chain for the next Apply. What was refused of it is tried
// again as it is now.
func (t *Table) touch(name string) {
	t.touched[name] = struct{}{}
	t.forgive(name)
}

// referAll counts, or with -1 discounts, what the rules lead to.
func (t *Table) referAll(rules []tables.Rule, n int) {
	for _, r := range rules {
		if target := tables.Target(r.Action); target != "" {
			t.chain(target).refs += n
		}
	}
}

// leadsOf returns what the rules lead to in each family, each once, in order of
// first use.
func leadsOf(rules []tables.Rule) map[model.Family][]string {
	leads := map[model.Family][]string{}
	for _, f := range model.Families() {
		seen := map[string]bool{}
		for _, r := range rules {
			target := tables.Target(r.Action)
			if target != "" && !seen[target] && inFamily(r, f) {
				seen[target] = true
				leads[f] = append(leads[f], target)
			}
		}
	}
	return leads
}

// inFamily reports whether the rule belongs into the tables of the family: one
// that is bound to the other, or that no packet matches, does not.
func inFamily(r tables.Rule, f model.Family) bool {
	for _, m := range r.Matches {
		if p, ok := m.(tables.MatchPrefix); ok && p.Negated && p.Prefix.Bits() == 0 {
			return false
		}
	}
	family := r.Family()
	return family == 0 || family == f
}

func sameHook(a, b *tables.Hook) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// content returns what the chain has to hold in a place that it lives in. One
// that is refused, or that asks one which is, stands closed. The nat tables drop
// nothing: there it is empty, and no address is rewritten.
func (t *Table) content(c *chain, p place) content {
	if closed, why := t.closed(c); closed {
		return standIn(p, why)
	}
	var out content
	for i, r := range c.want.Rules {
		if inFamily(r, p.family()) {
			out.hashes = append(out.hashes, c.hashes[i])
			out.rules = append(out.rules, r)
		}
	}
	return out
}

// closed reports whether the chain is to stand closed, and why.
func (t *Table) closed(c *chain) (closed bool, why string) {
	if r := t.refused[c.name]; r != nil {
		return true, r.reason
	}
	if causes := t.shut[c.name]; len(causes) > 0 {
		return true, "chain " + causes[0]
	}
	return t.holding[c.name], "its turn comes"
}

// standIn is the content of a chain that stands closed.
func standIn(p place, why string) content {
	if p.table() == tableNAT {
		return content{}
	}
	c := tables.Chain{Rules: []tables.Rule{{Action: tables.Drop{}, Comment: "refused: " + why[:min(len(why), longestWhy)]}}}
	return content{hashes: c.Hashes(), rules: c.Rules}
}

// longestWhy is how much of a reason is told in the kernel.
const longestWhy = 60

// unused reports whether nothing is left to know about the chain.
func (c *chain) unused() bool {
	return c.want == nil && c.refs == 0 && c.have == [places]*held{}
}
