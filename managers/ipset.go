package managers

import (
	"slices"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// IPSetManager keeps one set a family for every group, except for groups of one prefix:
// rules compare addresses with it. It has nothing to defer: the set drivers collect deltas
// themselves.
type IPSetManager struct {
	sets  ipsets.Sets
	known map[model.GroupID]bool
}

// NewIPSetManager returns a manager without groups.
func NewIPSetManager(sets ipsets.Sets) *IPSetManager {
	return &IPSetManager{sets: sets, known: map[model.GroupID]bool{}}
}

// OnUpdate takes GroupUpdate and GroupRemove.
func (m *IPSetManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.GroupUpdate:
		if _, one := u.Group.ID.Prefix(); one {
			return
		}
		for _, f := range model.Families() {
			name := ipsets.Name(u.Group.ID, f)
			if !m.known[u.Group.ID] {
				m.sets.CreateSet(ipsets.Set{Name: name, Kind: u.Group.Kind, Family: f, Group: u.Group.ID})
			}
			if members := ofFamily(u.Removed, f); len(members) > 0 {
				m.sets.RemoveMembers(name, members)
			}
			if members := ofFamily(u.Added, f); len(members) > 0 {
				m.sets.AddMembers(name, members)
			}
		}
		m.known[u.Group.ID] = true
	case model.GroupRemove:
		if !m.known[u.ID] {
			return
		}
		for _, f := range model.Families() {
			m.sets.RemoveSet(ipsets.Name(u.ID, f))
		}
		delete(m.known, u.ID)
	}
}

// CompleteDeferredWork does nothing.
func (m *IPSetManager) CompleteDeferredWork() {}

func ofFamily(members []model.Member, f model.Family) []model.Member {
	return slices.DeleteFunc(slices.Clone(members), func(m model.Member) bool { return m.Family() != f })
}
