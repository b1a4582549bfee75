package rules

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Counter identifies the counter of a rule in the kernel: by the rule's chain, and by the hash of its content
// (tables.Rule.Hash). The words in a rule's comment identify nothing: the kernel cuts them.
type Counter struct{ Chain, Hash string }

// PolicyCounters calls visit with each counter of each rule of a policy. A packet counts once. Unlike the methods
// that render, it may be called at any time: it uses only what is immutable.
func (r *Renderer) PolicyCounters(p *model.Policy, d model.Direction, visit func(*model.Rule, Counter)) {
	chain := r.PolicyChain(p.ID, d)
	all := p.Rules(d)
	for i := range all {
		for _, matches := range r.matchesOf(&all[i], d, model.Families()) {
			// The rules after the first get only packets that it has counted.
			visit(&all[i], Counter{chain, r.decision(p, &all[i], d, matches)[0].Hash()})
		}
	}
}

// DropChains renders the chains that drop denied packets, as they are while they report.
func (r *Renderer) DropChains() []tables.Chain {
	all := []tables.Chain{NoService(true)}
	for _, d := range model.Directions() {
		all = append(all, Denied(d, true), r.Rejected(d, true))
	}
	return all
}

// Ends returns the counters of the rules that end a packet's way in a chain of DropChains, and Reports those of the
// rules that report it before.
func Ends(c tables.Chain) []Counter {
	return countersOf(c, func(a tables.Action) bool {
		switch a.(type) {
		case tables.Drop, tables.Accept, tables.Reject:
			return true
		}
		return false
	})
}

// Reports is described at Ends.
func Reports(c tables.Chain) []Counter {
	return countersOf(c, func(a tables.Action) bool {
		_, reports := a.(tables.Report)
		return reports
	})
}

func countersOf(c tables.Chain, has func(tables.Action) bool) []Counter {
	var all []Counter
	for _, r := range c.Rules {
		if has(r.Action) {
			all = append(all, Counter{c.Name, r.Hash()})
		}
	}
	return all
}
