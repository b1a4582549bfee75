package policyflows

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// UpdateGroup creates a group or changes its members. Only the flows of these members
// become dirty.
func (s *Store) UpdateGroup(id model.GroupID, added, removed []model.Member) {
	s.quarantine.updateGroup(id, added, removed)
}

// RemoveGroup removes a group; rules that still ask it match nothing by it.
func (s *Store) RemoveGroup(id model.GroupID) {
	if s.networks.removeMembers(id) {
		return
	}
	g := s.groupOf(id)
	for m := range g.members {
		s.removeMember(g, m)
	}
	s.quarantine.liftUsers(id)
	s.dropGroup(g)
}

// UpdateNetworks creates a group of Networks or changes its members.
func (s *Store) UpdateNetworks(id model.GroupID, added, removed []model.Member) {
	s.networks.update(id, added, removed)
}

// Members returns the members of a group, in no order.
func (s *Store) Members(id model.GroupID) []model.Member {
	if n := s.networks.networks[id]; n != nil && n.known {
		return slices.Collect(maps.Keys(n.members))
	}
	if g := s.groups[id]; g != nil {
		return slices.Collect(maps.Keys(g.members))
	}
	return nil
}
