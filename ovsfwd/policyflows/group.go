package policyflows

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// group is a group with the rules that ask it. It is there while it has either
// members or rules.
type group struct {
	id      model.GroupID
	members map[model.Member]struct{}
	users   map[use]struct{}
	// asked counts the users by layer, those for peers and those for named ports.
	asked [layerCount][2]int
}

// everything are the members of the group that stands for any peer.
func everything() []model.Member {
	return []model.Member{
		{Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0)},
		{Prefix: netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
	}
}

// group returns the group, made if it is not there.
func (s *Store) group(id model.GroupID) *group {
	g := s.groups[id]
	if g == nil {
		g = &group{id: id, members: map[model.Member]struct{}{}, users: map[use]struct{}{}}
		s.groups[id] = g
	}
	return g
}

func (s *Store) dropGroup(g *group) {
	if len(g.members) == 0 && len(g.users) == 0 {
		delete(s.groups, g.id)
	}
}

// UpdateGroup creates a group or changes its members. Only the flows of the
// members named are touched.
func (s *Store) UpdateGroup(id model.GroupID, added, removed []model.Member) {
	g := s.group(id)
	for _, m := range removed {
		g.remove(s, m)
	}
	for _, m := range added {
		g.add(s, m)
	}
	s.liftUsers(id)
	s.dropGroup(g)
}

// RemoveGroup removes a group; rules that still ask it match nothing by it.
func (s *Store) RemoveGroup(id model.GroupID) {
	if s.removeNetworks(id) {
		return
	}
	g := s.group(id)
	for m := range g.members {
		g.remove(s, m)
	}
	s.liftUsers(id)
	s.dropGroup(g)
}

func (g *group) add(s *Store, m model.Member) {
	if _, has := g.members[m]; has {
		return
	}
	g.members[m] = struct{}{}
	s.members[m] = append(s.members[m], g)
	g.touch(s, m)
}

func (g *group) remove(s *Store, m model.Member) {
	if _, has := g.members[m]; !has {
		return
	}
	delete(g.members, m)
	groups := s.members[m]
	for i := range groups {
		if groups[i] == g {
			groups[i] = groups[len(groups)-1]
			groups[len(groups)-1] = nil
			groups = groups[:len(groups)-1]
			break
		}
	}
	if len(groups) == 0 {
		delete(s.members, m)
	} else {
		s.members[m] = groups
	}
	g.touch(s, m)
}

// touch notes that the flows of a member have to be set, wherever the group is
// asked.
func (g *group) touch(s *Store, m model.Member) {
	for l := range layerCount {
		if g.asked[l][kind(m.Protocol != model.AnyProtocol)] > 0 {
			s.dirty.members[memberClause{l, m}] = struct{}{}
		}
	}
}

func (g *group) use(u use) {
	if _, has := g.users[u]; !has {
		g.users[u] = struct{}{}
		g.asked[u.rule.layer][kind(u.named)]++
	}
}

func (g *group) unuse(u use) {
	if _, has := g.users[u]; has {
		delete(g.users, u)
		g.asked[u.rule.layer][kind(u.named)]--
	}
}

// kind is the place of a kind of users in group.asked.
func kind(named bool) int {
	if named {
		return 1
	}
	return 0
}
