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
	// members are the prefixes of each node, holders counts the nodes that have one:
	// it may go from a node to the next in any order, as when a node is replaced.
	members map[string][]model.Member
	holders map[model.Member]int
}

func newPodNetworks(sets ipsets.Sets) podNetworks {
	for _, f := range model.Families() {
		sets.CreateSet(rules.PodNetworks(f))
	}
	return podNetworks{sets: sets, members: map[string][]model.Member{}, holders: map[model.Member]int{}}
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
	gone, added := p.count(without(old, now), -1), p.count(without(now, old), +1)
	for _, f := range model.Families() {
		set := rules.PodNetworksSet(f)
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
