package managers

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// partSets programs the sets of addresses of parts.
type partSets struct {
	renderer *rules.Renderer
	sets     ipsets.Sets
}

// createSets programs the sets of a new part, if sets change in one transaction with rules.
func (s *partSets) createSets(p *part) {
	for _, f := range model.Families() {
		if s.renderer.SetsWithRules() {
			s.createSet(p, f, p.SetOf(f))
		}
	}
}

func (s *partSets) removeSets(p *part) {
	for _, f := range model.Families() {
		s.removeSet(p, f)
	}
}

// changeMember adds an address to a part or removes it. It reports whether the part's sets
// must be replaced.
func (s *partSets) changeMember(p *part, a netip.Addr, wanted bool) (replace bool) {
	if wanted {
		p.members[a] = true
	} else {
		delete(p.members, a)
	}
	name, members := p.sets[model.FamilyOf(a)], []model.Member{model.AddressMember(a)}
	switch {
	case !s.renderer.SetsWithRules():
		return true
	case wanted:
		s.sets.AddMembers(name, members)
	default:
		s.sets.RemoveMembers(name, members)
	}
	return false
}

// replaceSets programs other sets for the families whose members have changed.
func (s *partSets) replaceSets(p *part) {
	versions := map[model.Family]string{}
	for _, f := range model.Families() {
		s.replaceSet(p, f, versions)
	}
	p.Versions = versions
}

// replaceSet programs another set if the members of a family have changed.
func (s *partSets) replaceSet(p *part, f model.Family, versions map[model.Family]string) {
	var members []model.Member
	for _, a := range slices.SortedFunc(maps.Keys(p.members), netip.Addr.Compare) {
		if model.FamilyOf(a) == f {
			members = append(members, model.AddressMember(a))
		}
	}
	if slices.Equal(members, p.programmed[f]) && p.sets[f] != "" {
		versions[f] = p.Versions[f]
		return
	}
	for salt := 0; versions[f] == "" || rules.PartSet(p.Set, f)+versions[f] == p.sets[f]; salt++ {
		versions[f] = rules.SetVersion(members, salt)
	}
	s.removeSet(p, f)
	s.createSet(p, f, rules.PartSet(p.Set, f)+versions[f])
	s.sets.AddMembers(p.sets[f], members)
	p.programmed[f] = members
}

func (s *partSets) createSet(p *part, f model.Family, name string) {
	p.sets[f] = name
	s.sets.CreateSet(ipsets.Set{Name: name, Kind: model.Addresses, Family: f})
}

func (s *partSets) removeSet(p *part, f model.Family) {
	if p.sets[f] != "" {
		s.sets.RemoveSet(p.sets[f])
	}
	delete(p.sets, f)
	delete(p.programmed, f)
}
