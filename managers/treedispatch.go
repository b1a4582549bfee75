package managers

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// TreeDispatcher dispatches through prefix trees of chains, for drivers without verdict maps. It stands
// between the managers and such a driver: in a chain that is set through it, it replaces a tables.Dispatch
// rule by the rules of the tree's root, and sets the chain anew when they change. A packet that finds nothing
// in the tree goes on to the rule behind, as it does with a map.
type TreeDispatcher struct {
	chains Chains
	// trees have the names of the maps that they replace.
	trees map[string]*rules.AddressTree
	// hosts are the chains with rules that dispatch, as they were set.
	hosts map[string]tables.Chain
}

// NewTreeDispatcher returns a Dispatcher with an empty tree for both
// directions and families, over a driver's chains. The manager of the static
// chains has to set them through it.
func NewTreeDispatcher(renderer *rules.Renderer, chains Chains) *TreeDispatcher {
	t := &TreeDispatcher{chains: chains, trees: map[string]*rules.AddressTree{}, hosts: map[string]tables.Chain{}}
	for _, d := range model.Directions() {
		for _, f := range model.Families() {
			t.trees[rules.DispatchMap(d, f)] = rules.NewAddressTree(renderer.Names, d, f)
		}
	}
	return t
}

// SetVerdict wants the verdict for an address.
func (t *TreeDispatcher) SetVerdict(d model.Direction, addr netip.Addr, verdict tables.Action) {
	t.tree(d, addr).Set(addr, verdict)
}

// RemoveVerdict no longer wants a verdict for the address.
func (t *TreeDispatcher) RemoveVerdict(d model.Direction, addr netip.Addr) {
	t.tree(d, addr).Remove(addr)
}

func (t *TreeDispatcher) tree(d model.Direction, addr netip.Addr) *rules.AddressTree {
	return t.trees[rules.DispatchMap(d, model.FamilyOf(addr))]
}

// Complete sets the chains of the trees that changed, and those that hold
// their roots.
func (t *TreeDispatcher) Complete() {
	roots := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(t.trees)) {
		changes := t.trees[name].Changes()
		for _, c := range changes.Chains {
			t.chains.UpdateChain(c)
		}
		for _, gone := range changes.Removed {
			t.chains.RemoveChain(gone)
		}
		roots[name] = changes.Root
	}
	var changed []string
	for name, c := range t.hosts {
		if slices.ContainsFunc(c.Rules, func(r tables.Rule) bool { return roots[mapOf(r)] }) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		t.chains.UpdateChain(t.expand(t.hosts[name]))
	}
}

// UpdateChain wants the chain, with trees in the place of maps.
func (t *TreeDispatcher) UpdateChain(c tables.Chain) {
	delete(t.hosts, c.Name)
	if slices.ContainsFunc(c.Rules, func(r tables.Rule) bool { return mapOf(r) != "" }) {
		t.hosts[c.Name] = c
		c = t.expand(c)
	}
	t.chains.UpdateChain(c)
}

// RemoveChain no longer wants the chain.
func (t *TreeDispatcher) RemoveChain(name string) {
	delete(t.hosts, name)
	t.chains.RemoveChain(name)
}

// expand puts the rules of a tree's root in the place of each rule that looks
// up its map. A rule with a map that has no tree stays, for the driver to
// refuse.
func (t *TreeDispatcher) expand(c tables.Chain) tables.Chain {
	out := c
	out.Rules = nil
	for _, r := range c.Rules {
		tree, ok := t.trees[mapOf(r)]
		if !ok {
			out.Rules = append(out.Rules, r)
			continue
		}
		for _, entry := range tree.Root() {
			entry.Matches = slices.Concat(r.Matches, entry.Matches)
			out.Rules = append(out.Rules, entry)
		}
	}
	return out
}

// mapOf returns the map that a rule looks up, or "".
func mapOf(r tables.Rule) string {
	d, _ := r.Action.(tables.Dispatch)
	return d.Map
}
