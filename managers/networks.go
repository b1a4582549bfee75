package managers

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// podNetworks keeps a set of prefixes of nodes in each family: that of the cluster's pod prefixes, by which a
// forged pod address from outside is known, or that of the peers.
type podNetworks struct {
	sets ipsets.Sets
	// set names the set of a family, prefixes returns those of a node.
	set      func(model.Family) string
	prefixes func(*model.Node) []netip.Prefix
	// members are the prefixes of each node, holders counts the nodes that have one:
	// it may go from a node to the next in any order, as when a node is replaced.
	members map[string][]model.Member
	holders map[model.Member]int
}

func newPodNetworks(sets ipsets.Sets) podNetworks {
	return newNetworks(sets, rules.PodNetworksSet, func(n *model.Node) []netip.Prefix { return n.PodCIDRs })
}

// newPeerNetworks returns the sets of all prefixes and addresses of peers; this node must not be among them. A node
// without pods of a family has no route back to pods of the family, so packets to its address do not keep the pod's.
func newPeerNetworks(sets ipsets.Sets) podNetworks {
	return newNetworks(sets, rules.PeersSet, func(n *model.Node) []netip.Prefix {
		all := slices.Clone(n.PodCIDRs)
		for _, a := range n.Addresses {
			if n.PodCIDR(model.FamilyOf(a.Unmap())).IsValid() {
				all = append(all, model.AddressMember(a).Prefix)
			}
		}
		return all
	})
}

// routedPeers returns newPeerNetworks for a renderer of nodes without a tunnel, and nil for others.
func routedPeers(renderer *rules.Renderer, sets ipsets.Sets) *podNetworks {
	if !renderer.Node().Routed() {
		return nil
	}
	peers := newPeerNetworks(sets)
	return &peers
}

func newNetworks(sets ipsets.Sets, set func(model.Family) string, prefixes func(*model.Node) []netip.Prefix) podNetworks {
	for _, f := range model.Families() {
		sets.CreateSet(ipsets.Set{Name: set(f), Kind: model.Networks, Family: f})
	}
	return podNetworks{sets: sets, set: set, prefixes: prefixes, members: map[string][]model.Member{}, holders: map[model.Member]int{}}
}

// update gives the sets the prefixes of a node, nil if it is gone.
func (p podNetworks) update(name string, n *model.Node) {
	var now []model.Member
	if n != nil {
		for _, prefix := range p.prefixes(n) {
			now = append(now, model.Member{Prefix: prefix})
		}
	}
	old := p.members[name]
	gone, added := p.count(without(old, now), -1), p.count(without(now, old), +1)
	for _, f := range model.Families() {
		set := p.set(f)
		if gone := ofFamily(gone, f); len(gone) > 0 {
			p.sets.RemoveMembers(set, gone)
		}
		if added := ofFamily(added, f); len(added) > 0 {
			p.sets.AddMembers(set, added)
		}
	}
	p.members[name] = now
	if n == nil {
		delete(p.members, name)
	}
}

// count counts a node that has the prefixes now, or has them no more, and returns
// those that it is the first to have, or was the last.
func (p podNetworks) count(members []model.Member, n int) (changed []model.Member) {
	for _, m := range members {
		before := p.holders[m]
		p.holders[m] = before + n
		if p.holders[m] == 0 {
			delete(p.holders, m)
		}
		if min(before, before+n) == 0 {
			changed = append(changed, m)
		}
	}
	return changed
}

func without(members, others []model.Member) []model.Member {
	return slices.DeleteFunc(slices.Clone(members), func(m model.Member) bool { return slices.Contains(others, m) })
}
