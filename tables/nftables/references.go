package nftables

import (
	"iter"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// desiredChain returns the chain as it is desired, or nil.
func (o *objects) desiredChain(name string) *tables.Chain {
	if c := o.chains[name]; c != nil {
		return c.desired
	}
	return nil
}

// originOf returns the origin of a desired unit, or nil.
func (o *objects) originOf(u kernel.Unit) tables.Origin {
	switch u.Kind {
	case kernel.ChainUnit:
		if c := o.desiredChain(u.Name); c != nil {
			return c.Origin
		}
	case kernel.EntryUnit:
		return tables.OfAddresses{Prefix: u.Entry.Prefix}
	case kernel.SetUnit:
		switch s := o.sets[u.Name]; {
		case s == nil:
		case s.group != "":
			return tables.OfGroup{ID: s.group}
		case s.desired && (s.shape.Verdicts || s.shape.Numbers || s.shape.Kind.Grants()): // every pod's packets are looked up in it
			return tables.OfEveryPod{}
		}
	}
	return nil
}

// markPartial marks the chains that the plan was to create: the kernel may have some by now.
func (o *objects) markPartial() {
	for name := range o.dirtyChains {
		if c := o.chains[name]; c != nil && c.desired != nil && c.observed == nil {
			c.partial = true
		}
	}
}

// adopt replaces the known state of the kernel, and marks every object dirty.
func (o *objects) adopt(state *kernel.State) {
	o.exists, o.others = state.Exists, state.Others
	for name := range state.Chains {
		o.chain(name)
	}
	for name := range state.Sets {
		o.set(name)
	}
	for name, c := range o.chains {
		c.take(state.Chains[name])
		o.dirtyChains.add(name)
	}
	for name, s := range o.sets {
		s.adopt(state.Sets[name])
		o.dirtySets.add(name)
	}
}

func (o *objects) inKernel(u kernel.Unit) bool {
	c, s := o.chains[u.Name], o.sets[u.Name]
	switch u.Kind {
	case kernel.ChainUnit:
		return c != nil && c.observed != nil
	case kernel.EntryUnit:
		return s != nil && s.observed != nil && s.members.held(u.Entry).present
	}
	return s != nil && s.observed != nil
}

// isDesired reports whether the unit is desired. A set with members counts: it is refused
// because it is not desired otherwise.
func (o *objects) isDesired(u kernel.Unit) bool {
	if u.Kind == kernel.ChainUnit {
		c := o.chains[u.Name]
		return c != nil && c.desired != nil
	}
	s := o.sets[u.Name]
	if s == nil {
		return false
	}
	_, ok := s.members.desired[u.Entry]
	return ok || u.Kind == kernel.SetUnit && (s.desired || len(s.members.desired) > 0)
}

// required returns the units that cannot be quarantined: the base chains and their references. Of these, only
// chains that are not base chains may be closed.
func (o *objects) required() map[kernel.Unit]bool {
	out := map[kernel.Unit]bool{}
	for name, c := range o.chains {
		if c.desired != nil && c.desired.Hook != nil {
			out[kernel.Unit{Kind: kernel.ChainUnit, Name: name}] = true
			for u := range references(c.desired.Rules) {
				out[u] = true
			}
		}
	}
	return out
}

// markReferrersOf has everything compared that refers to a chain or a set.
func (o *objects) markReferrersOf(u kernel.Unit) {
	for name, c := range o.chains {
		if c.desired != nil && refersTo(c.desired.Rules, u) {
			o.dirtyChains.add(name)
		}
	}
	if u.Kind != kernel.ChainUnit {
		return
	}
	for name, s := range o.sets {
		for m, verdict := range s.members.desired {
			if tables.Target(verdict) == u.Name {
				o.dirtySets.add(name)
				s.members.markDirty(m)
			}
		}
	}
}

// references yields the sets and chains that rules refer to, as often as they
// do.
func references(rules []tables.Rule) iter.Seq[kernel.Unit] {
	return func(yield func(kernel.Unit) bool) {
		for _, r := range rules {
			for _, m := range r.Matches {
				for name := range tables.SetsOf(m) {
					if !yield(kernel.Unit{Kind: kernel.SetUnit, Name: name}) {
						return
					}
				}
			}
			if d, ok := r.Action.(tables.Dispatch); ok && !yield(kernel.Unit{Kind: kernel.SetUnit, Name: d.Map}) {
				return
			}
			if name := tables.Target(r.Action); name != "" && !yield(kernel.Unit{Kind: kernel.ChainUnit, Name: name}) {
				return
			}
		}
	}
}

func refersTo(rules []tables.Rule, u kernel.Unit) bool {
	for r := range references(rules) {
		if r == u {
			return true
		}
	}
	return false
}
