package policyflows

import (
	"fmt"
	"maps"
	"slices"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// MaxFlows bounds the flows for the rules of one direction of a policy. Flows of its
// pods and of pods that selectors match do not count. The switch takes some 15,000
// flows a second, and other policies wait meanwhile (docs/LIMITS.md).
const MaxFlows = 30_000

// flowsPerRule counts the flows of a rule besides its clauses, in both families: the
// flow of the conjunction's action and the flow that counts packets.
const flowsPerRule = 4

// networks is a group of Networks. Conjunctions have no exceptions: a drop flow in
// their table would also hit packets that another rule allows. So the flows of the
// group are disjoint prefixes: the blocks without their exceptions.
type networks struct {
	members map[model.Member]struct{}
	users   map[*policy]struct{}
	// prefixes counts the disjoint prefixes; counting stops above MaxFlows.
	prefixes int
	// known is false while rules name the group but nobody has created it.
	known bool
}

// UpdateNetworks creates a group of Networks or changes its members.
func (s *Store) UpdateNetworks(id model.GroupID, added, removed []model.Member) {
	n := s.network(id)
	n.known = true
	for _, m := range removed {
		delete(n.members, m)
	}
	for _, m := range added {
		n.members[m] = struct{}{}
	}
	n.prefixes = n.count()
	s.dirty.networks[id] = struct{}{}
	for p := range n.users {
		s.dirty.weights[p] = struct{}{}
	}
}

func (s *Store) network(id model.GroupID) *networks {
	n := s.networks[id]
	if n == nil {
		n = &networks{members: map[model.Member]struct{}{}, users: map[*policy]struct{}{}}
		s.networks[id] = n
	}
	return n
}

// disjoint yields the prefixes of the group, none of which overlaps another.
func (n *networks) disjoint(yield func(model.Member) bool) {
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

func (n *networks) count() int {
	count := 0
	for range n.disjoint {
		if count++; count > MaxFlows {
			break
		}
	}
	return count
}

// asks records the groups of networks that the rules of a policy use, old and new.
func (s *Store) asks(p *policy, before []*rule) {
	for _, r := range before {
		for _, id := range r.spec.Peers {
			if n := s.networks[id]; n != nil {
				delete(n.users, p)
				s.dirty.networks[id] = struct{}{}
			}
		}
	}
	for _, r := range p.rules {
		for _, id := range r.spec.Peers {
			if id.Kind() == model.Networks {
				s.network(id).users[p] = struct{}{}
				s.dirty.networks[id] = struct{}{}
			}
		}
	}
	s.dirty.weights[p] = struct{}{}
}

// weigh closes the policies that need too many flows, and fills the groups of networks
// that the other policies use.
func (s *Store) weigh() {
	for p := range s.dirty.weights {
		weight := 0
		for _, r := range p.rules {
			weight += flowsPerRule + len(model.Families())*len(r.ports)
			for _, id := range r.spec.Peers {
				if n := s.networks[id]; n != nil {
					weight += n.prefixes
				}
			}
		}
		if over := weight > MaxFlows; p.oversized != over {
			p.oversized = over
			for id := range p.networks(s) {
				s.dirty.networks[id] = struct{}{}
			}
			s.reconsider(p)
		}
	}
	for id := range s.dirty.networks {
		s.fill(id)
	}
	clear(s.dirty.weights)
	clear(s.dirty.networks)
}

// networks yields the groups of networks that the policy's rules ask.
func (p *policy) networks(s *Store) func(yield func(model.GroupID) bool) {
	return func(yield func(model.GroupID) bool) {
		for _, r := range p.rules {
			for _, id := range r.spec.Peers {
				if s.networks[id] != nil && !yield(id) {
					return
				}
			}
		}
	}
}

// fill gives a group of networks its members, or none unless an open policy uses it.
func (s *Store) fill(id model.GroupID) {
	n := s.networks[id]
	if n == nil || !n.known {
		return
	}
	wanted := map[model.Member]struct{}{}
	for p := range n.users {
		if !p.oversized {
			for m := range n.disjoint {
				wanted[m] = struct{}{}
			}
			break
		}
	}
	var added, removed []model.Member
	if g := s.groups[id]; g != nil {
		for m := range g.members {
			if _, has := wanted[m]; !has {
				removed = append(removed, m)
			} else {
				delete(wanted, m)
			}
		}
	}
	for m := range wanted {
		added = append(added, m)
	}
	if len(added)+len(removed) > 0 {
		s.UpdateGroup(id, added, removed)
	}
	if len(n.members) == 0 && len(n.users) == 0 {
		delete(s.networks, id)
	}
}

// standing returns why the policy is closed beside what the switch refuses, or "".
func (p *policy) standing() string {
	switch {
	case p.oversized:
		return fmt.Sprintf("spec.%s comes to more than %d flows (blocks without their exceptions as prefixes, ports, rules): use fewer or wider exceptions, or split the policy",
			p.direction, MaxFlows)
	case p.crowded:
		return "the ordered policies of this node have more rules than their table has priorities"
	}
	return ""
}

// removeNetworks removes a group of networks; it reports whether there is one.
func (s *Store) removeNetworks(id model.GroupID) bool {
	n := s.networks[id]
	if n == nil || !n.known {
		return false
	}
	s.UpdateNetworks(id, nil, slices.Collect(maps.Keys(n.members)))
	return true
}
