package nftables

import (
	"slices"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// objects are the chains and sets of one table by name, with their desired and observed state.
type objects struct {
	table  string // its name
	chains map[string]*chain
	sets   map[string]*set // verdict maps too: they share the kernel's namespace
	// exists says that the kernel has the table.
	exists bool
	// others are in the table and never ours.
	others []kernel.Other
	// The names of the objects that the next Apply compares with the kernel.
	dirtyChains, dirtySets names
	// recheck asks for a validation of all chains: something that rules refer to was
	// redefined.
	recheck bool
	// changes counts the changes of the desired state.
	changes uint64
}

func newObjects(table string) *objects {
	return &objects{table: table, chains: map[string]*chain{}, sets: map[string]*set{}, dirtyChains: names{}, dirtySets: names{}}
}

// change counts one more change of the desired state.
func (o *objects) change() uint64 {
	o.changes++
	return o.changes
}

// names is a set of object names.
type names map[string]struct{}

func (n names) add(name string) { n[name] = struct{}{} }

func (n names) sorted() []string {
	out := make([]string, 0, len(n))
	for name := range n {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// UpdateChain wants the chain to be exactly as given.
func (o *objects) UpdateChain(want tables.Chain) {
	c := o.chain(want.Name)
	hashes := want.Hashes()
	if c.desired != nil && slices.Equal(c.hashes, hashes) && kernel.BaseOf(c.desired.Hook) == kernel.BaseOf(want.Hook) {
		c.desired.Origin = want.Origin
		return
	}
	if c.desired != nil {
		o.referAll(c.desired.Rules, -1)
	}
	// Nothing may lead to a base chain, so the rules that lead to this one are checked again.
	o.recheck = o.recheck || want.Hook != nil && c.refs > 0
	o.referAll(want.Rules, +1)
	c.desired, c.hashes = &want, hashes
	c.changed = o.change()
	o.dirtyChains.add(want.Name)
}

// RemoveChain no longer wants the chain.
func (o *objects) RemoveChain(name string) {
	c, ok := o.chains[name]
	if !ok || c.desired == nil {
		return
	}
	o.referAll(c.desired.Rules, -1)
	c.desired, c.hashes = nil, nil
	c.changed = o.change()
	o.dirtyChains.add(name)
}

// chain returns the named chain, new if need be.
func (o *objects) chain(name string) *chain {
	c, ok := o.chains[name]
	if !ok {
		c = &chain{name: name}
		o.chains[name] = c
	}
	return c
}

// referAll counts, or with -1 discounts, the references of the rules.
func (o *objects) referAll(rules []tables.Rule, n int) {
	for _, r := range rules {
		for _, m := range r.Matches {
			for name := range tables.SetsOf(m) {
				o.referSet(name, n)
			}
		}
		o.refer(r.Action, n)
	}
}

// refer counts, or with -1 discounts, the references of an action.
func (o *objects) refer(a tables.Action, n int) {
	if d, ok := a.(tables.Dispatch); ok {
		o.referSet(d.Map, n)
		return
	}
	target := tables.Target(a)
	if target == "" {
		return
	}
	c := o.chain(target)
	c.refs += n
	if c.unused() {
		delete(o.chains, target)
	}
}

func (o *objects) referSet(name string, n int) {
	s := o.set(name)
	s.refs += n
	if s.unused() {
		delete(o.sets, name)
	}
}

// set returns the named set, new if need be.
func (o *objects) set(name string) *set {
	s, ok := o.sets[name]
	if !ok {
		s = newSet(name)
		o.sets[name] = s
	}
	return s
}
