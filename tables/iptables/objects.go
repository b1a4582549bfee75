package iptables

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// objects are all chains, desired or observed, and the work that changes of them leave
// for the next Apply.
type objects struct {
	families []model.Family
	chains   map[string]*chain
	dirty    map[string]struct{}
	// recheck asks for a validation of all chains, relocate for the places of all chains.
	recheck, relocate bool
}

// update sets the desired content of a chain. It reports whether that is a change.
func (o *objects) update(desired tables.Chain) bool {
	c := o.chain(desired.Name)
	hashes := desired.Hashes()
	if c.desired != nil && slices.Equal(c.hashes, hashes) && sameHook(c.desired.Hook, desired.Hook) {
		c.desired.Origin = desired.Origin
		return false
	}
	targets := targetsOf(desired.Rules)
	if c.desired == nil || !sameHook(c.desired.Hook, desired.Hook) {
		// Rules that jump here may be right now, or wrong.
		o.recheck = o.recheck || c.refs > 0
		o.relocate = true
	}
	for _, f := range model.Families() {
		o.relocate = o.relocate || desired.Hook != nil || !slices.Equal(c.targets[f], targets[f])
	}
	if c.desired != nil {
		o.countReferences(c.desired.Rules, -1)
	}
	o.countReferences(desired.Rules, +1)
	c.desired, c.hashes, c.targets = &desired, hashes, targets
	o.mark(c.name)
	return true
}

// remove ends that a chain is desired. It reports whether it was.
func (o *objects) remove(name string) bool {
	c, ok := o.chains[name]
	if !ok || c.desired == nil {
		return false
	}
	o.countReferences(c.desired.Rules, -1)
	c.desired, c.hashes, c.targets = nil, nil, nil
	o.recheck = o.recheck || c.refs > 0
	o.relocate = true
	o.mark(name)
	return true
}

// chain returns the named chain, and makes it if there is none.
func (o *objects) chain(name string) *chain {
	c, ok := o.chains[name]
	if !ok {
		c = &chain{name: name}
		o.chains[name] = c
	}
	return c
}

// mark makes the chain dirty.
func (o *objects) mark(name string) { o.dirty[name] = struct{}{} }

// countReferences adds n to the references of each chain that the rules jump or go to.
func (o *objects) countReferences(rules []tables.Rule, n int) {
	for _, r := range rules {
		if target := tables.Target(r.Action); target != "" {
			o.chain(target).refs += n
		}
	}
}

// desiredChain returns the desired content of a chain, or nil.
func (o *objects) desiredChain(name string) *tables.Chain {
	if c := o.chains[name]; c != nil {
		return c.desired
	}
	return nil
}

// dropUnused forgets the chains that are neither desired nor in the kernel.
func (o *objects) dropUnused() {
	for name, c := range o.chains {
		if c.unused() {
			delete(o.chains, name)
		}
	}
}

// sorted returns the names of a set in order.
func sorted[V any](names map[string]V) []string { return slices.Sorted(maps.Keys(names)) }
