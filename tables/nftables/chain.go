package nftables

import (
	"slices"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// chain is one chain by name: what is wanted of it, what the kernel holds of
// it, and how many wanted rules and verdicts lead to it.
type chain struct {
	name   string
	want   *tables.Chain // nil: not wanted
	hashes []string      // of the wanted rules
	have   *kernel.Chain // nil: not in the kernel
	// claims says that have was read: the hashes of its rules are only what their
	// comments claim. echoed are the rules before it, as the kernel echoed them.
	claims bool
	echoed []kernel.Rule
	held   int // the rules that the kernel had after the last commit
	refs   int
	// standIn is what is programmed instead while the chain stands closed, with its
	// hashes.
	standIn       *tables.Chain
	standInHashes []string
	// reopens tells that it stands closed in the kernel, but is not to any more.
	reopens bool
	// hollow tells that an earlier transaction of a load that was refused has made
	// it, so that it may be in the kernel without its rules.
	hollow bool
	// changed is the count of changes at which it was last wanted otherwise.
	changed uint64
}

// UpdateChain wants the chain to be exactly as given.
func (t *Table) UpdateChain(want tables.Chain) {
	c := t.chain(want.Name)
	hashes := want.Hashes()
	if c.want != nil && slices.Equal(c.hashes, hashes) && kernel.BaseOf(c.want.Hook) == kernel.BaseOf(want.Hook) {
		return
	}
	if c.want != nil {
		t.referAll(c.want.Rules, -1)
	}
	// Nothing may lead to a base chain, so who leads to this one is asked again.
	t.recheck = t.recheck || want.Hook != nil && c.refs > 0
	t.referAll(want.Rules, +1)
	c.want, c.hashes = &want, hashes
	c.changed = t.change()
	t.touchedChains.add(want.Name)
}

// RemoveChain no longer wants the chain.
func (t *Table) RemoveChain(name string) {
	c, ok := t.chains[name]
	if !ok || c.want == nil {
		return
	}
	t.referAll(c.want.Rules, -1)
	c.want, c.hashes = nil, nil
	c.changed = t.change()
	t.touchedChains.add(name)
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

// referAll counts, or with -1 discounts, what the rules refer to.
func (t *Table) referAll(rules []tables.Rule, n int) {
	for _, r := range rules {
		for _, m := range r.Matches {
			if name := tables.SetOf(m); name != "" {
				t.referSet(name, n)
			}
		}
		t.refer(r.Action, n)
	}
}

// refer counts, or with -1 discounts, what an action refers to.
func (t *Table) refer(a tables.Action, n int) {
	if d, ok := a.(tables.Dispatch); ok {
		t.referSet(d.Map, n)
		return
	}
	target := tables.Target(a)
	if target == "" {
		return
	}
	c := t.chain(target)
	c.refs += n
	if c.unused() {
		delete(t.chains, target)
	}
}

func (t *Table) referSet(name string, n int) {
	s := t.set(name)
	s.refs += n
	if s.unused() {
		delete(t.sets, name)
	}
}

// unused reports whether nothing is left to know about the chain.
func (c *chain) unused() bool { return c.want == nil && c.have == nil && c.refs == 0 }
