package policyflows

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// flowsPerRule counts the flows of a rule besides its clauses, in both families: the
// flow of the conjunction's action and the flow that counts packets.
const flowsPerRule = 4

// networkGroup is a group of Networks. Conjunctions have no exceptions: a drop flow in
// their table would also hit packets that another rule allows. So the flows of the
// group are disjoint prefixes: the blocks without their exceptions.
type networkGroup struct {
	members map[model.Member]struct{}
	users   map[*policy]struct{}
	// prefixes counts the disjoint prefixes; counting stops above MaxFlows.
	prefixes int
	// known is false while rules name the group but it has not been created.
	known bool
}

// disjoint yields the prefixes of the group, none of which overlaps another.
func (n *networkGroup) disjoint(yield func(model.Member) bool) {
	for _, f := range model.Families() {
		var members []model.Member
		for m := range n.members {
			if m.Family() == f {
				members = append(members, m)
			}
		}
		if !ipsets.HasExceptions(members) {
			for _, m := range members {
				if !yield(m) {
					return
				}
			}
			continue
		}
		for _, r := range ipsets.Ranges(members) {
			for _, p := range r.Prefixes() {
				if !yield(model.Member{Prefix: p}) {
					return
				}
			}
		}
	}
}

func (n *networkGroup) countPrefixes() int {
	count := 0
	for range n.disjoint {
		if count++; count > MaxFlows {
			break
		}
	}
	return count
}

// networkGroups are the groups of Networks, and the weight of the policies that use them.
type networkGroups struct {
	*objects
	placer     *placer
	quarantine *quarantine
	networks   map[model.GroupID]*networkGroup
}

// update creates a group of Networks or changes its members.
func (ng *networkGroups) update(id model.GroupID, added, removed []model.Member) {
	n := ng.network(id)
	n.known = true
	for _, m := range removed {
		delete(n.members, m)
	}
	for _, m := range added {
		n.members[m] = struct{}{}
	}
	n.prefixes = n.countPrefixes()
	ng.dirty.networks[id] = struct{}{}
	for p := range n.users {
		ng.dirty.weights[p] = struct{}{}
	}
}

func (ng *networkGroups) network(id model.GroupID) *networkGroup {
	n := ng.networks[id]
	if n == nil {
		n = &networkGroup{members: map[model.Member]struct{}{}, users: map[*policy]struct{}{}}
		ng.networks[id] = n
	}
	return n
}

// setUses records the groups of networks that the rules of a policy use, old and new.
func (ng *networkGroups) setUses(p *policy, before []*rule) {
	for _, r := range before {
		for _, id := range r.spec.Peers {
			if n := ng.networks[id]; n != nil {
				delete(n.users, p)
				ng.dirty.networks[id] = struct{}{}
			}
		}
	}
	for _, r := range p.rules {
		for _, id := range r.spec.Peers {
			if id.Kind() == model.Networks {
				ng.network(id).users[p] = struct{}{}
				ng.dirty.networks[id] = struct{}{}
			}
		}
	}
	ng.dirty.weights[p] = struct{}{}
}

// weigh closes the policies that need too many flows, and fills the groups of networks
// that the other policies use.
func (ng *networkGroups) weigh() {
	for p := range ng.dirty.weights {
		weight := 0
		for _, r := range p.rules {
			weight += flowsPerRule + len(model.Families())*len(r.ports)
			for _, id := range r.spec.Peers {
				if n := ng.networks[id]; n != nil {
					weight += n.prefixes
				}
			}
		}
		if over := weight > MaxFlows; p.oversized != over {
			p.oversized = over
			for id := range ng.usedBy(p) {
				ng.dirty.networks[id] = struct{}{}
			}
			ng.placer.reconsider(p)
		}
	}
	for id := range ng.dirty.networks {
		ng.fill(id)
	}
	clear(ng.dirty.weights)
	clear(ng.dirty.networks)
}

// usedBy yields the groups of networks that the rules of a policy ask.
func (ng *networkGroups) usedBy(p *policy) func(yield func(model.GroupID) bool) {
	return func(yield func(model.GroupID) bool) {
		for _, r := range p.rules {
			for _, id := range r.spec.Peers {
				if ng.networks[id] != nil && !yield(id) {
					return
				}
			}
		}
	}
}

// fill gives a group of networks its members, or none unless an open policy uses it.
func (ng *networkGroups) fill(id model.GroupID) {
	n := ng.networks[id]
	if n == nil || !n.known {
		return
	}
	desired := map[model.Member]struct{}{}
	for p := range n.users {
		if !p.oversized {
			for m := range n.disjoint {
				desired[m] = struct{}{}
			}
			break
		}
	}
	var added, removed []model.Member
	if g := ng.groups[id]; g != nil {
		for m := range g.members {
			if _, has := desired[m]; !has {
				removed = append(removed, m)
			} else {
				delete(desired, m)
			}
		}
	}
	for m := range desired {
		added = append(added, m)
	}
	if len(added)+len(removed) > 0 {
		ng.quarantine.updateGroup(id, added, removed)
	}
	if len(n.members) == 0 && len(n.users) == 0 {
		delete(ng.networks, id)
	}
}

// remove removes a group of networks; it reports whether there is one.
func (ng *networkGroups) removeMembers(id model.GroupID) bool {
	n := ng.networks[id]
	if n == nil || !n.known {
		return false
	}
	ng.update(id, nil, slices.Collect(maps.Keys(n.members)))
	return true
}
