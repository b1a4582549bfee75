package managers

import (
	"slices"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// podNetworks keeps the sets of the cluster's pod prefixes, by which a forged
// pod address from outside is known.
type podNetworks struct {
	sets ipsets.Sets
	// members are what the sets were given, by node.
	members map[string][]model.Member
}

func newPodNetworks(sets ipsets.Sets) podNetworks {
	for _, f := range model.Families() {
		sets.CreateSet(rules.PodNetworks(f))
	}
	return podNetworks{sets: sets, members: map[string][]model.Member{}}
}

// set gives the sets the prefixes of a node, nil if it is gone.
func (p podNetworks) set(name string, n *model.Node) {
	var now []model.Member
	if n != nil {
		for _, prefix := range n.PodCIDRs {
			now = append(now, model.Member{Prefix: prefix})
		}
	}
	old := p.members[name]
	for _, f := range model.Families() {
		set := rules.PodNetworksSet(f)
		if gone := without(ofFamily(old, f), now); len(gone) > 0 {
			p.sets.RemoveMembers(set, gone)
		}
		if added := without(ofFamily(now, f), old); len(added) > 0 {
			p.sets.AddMembers(set, added)
		}
	}
	p.members[name] = now
	if n == nil {
		delete(p.members, name)
	}
}

func without(members, others []model.Member) []model.Member {
	return slices.DeleteFunc(members, func(m model.Member) bool { return slices.Contains(others, m) })
}
