package nftables

import (
	"net/netip"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// CreateSet wants the set to exist.
func (o *objects) CreateSet(s ipsets.Set) {
	o.define(s.Name, kernel.Shape{Kind: s.Kind, Family: s.Family})
	o.set(s.Name).group = s.Group
}

// CreateMap wants the verdict map to exist.
func (o *objects) CreateMap(name string, family model.Family) {
	o.define(name, kernel.Shape{Kind: model.Addresses, Family: family, Verdicts: true})
}

// CreateNumberMap wants the map of numbers to exist.
func (o *objects) CreateNumberMap(name string, kind model.GroupKind, family model.Family) {
	o.define(name, kernel.Shape{Kind: kind, Family: family, Numbers: true})
}

// SetNumber adds the desired entry, or replaces one with the same member. An entry of a map that is not
// desired is an error of the next Apply.
func (o *objects) SetNumber(name string, m model.Member, n tables.Number) {
	o.put(o.set(name), m, n)
	o.dirtySets.add(name)
}

// RemoveNumber no longer wants the entry.
func (o *objects) RemoveNumber(name string, m model.Member) {
	o.RemoveMembers(name, []model.Member{m})
}

// define wants a set or map of the given shape. One that is desired with
// another shape is emptied; the kernel cannot change a set's type, so the
// next Apply then builds the whole table anew.
func (o *objects) define(name string, sh kernel.Shape) {
	s := o.set(name)
	if s.desired && s.shape == sh {
		return
	}
	if s.desired {
		o.empty(s)
	}
	if s.shape != sh {
		o.recheck = o.recheck || s.shape != (kernel.Shape{})
		s.reshape(sh)
	}
	s.desired, s.changed = true, o.change()
	o.dirtySets.add(name)
}

// RemoveSet no longer wants the set.
func (o *objects) RemoveSet(name string) {
	s, ok := o.sets[name]
	if !ok {
		return
	}
	o.empty(s)
	s.desired, s.changed = false, o.change()
	o.dirtySets.add(name)
}

// empty wants no member of the set.
func (o *objects) empty(s *set) {
	for m := range s.members.desired {
		o.discard(s, m)
	}
}

// AddMembers adds desired members to the set. Members of a set that is not desired are an error of the next
// Apply.
func (o *objects) AddMembers(name string, members []model.Member) {
	if len(members) == 0 {
		return
	}
	s := o.set(name)
	for _, m := range members {
		o.put(s, m, nil)
	}
	o.dirtySets.add(name)
}

// RemoveMembers no longer wants the members in the set.
func (o *objects) RemoveMembers(name string, members []model.Member) {
	s, ok := o.sets[name]
	if !ok {
		return
	}
	for _, m := range members {
		o.discard(s, m)
	}
	o.dirtySets.add(name)
}

// SetVerdict adds the desired entry, or replaces one with the same address. An entry of a map that is not
// desired is an error of the next Apply.
func (o *objects) SetVerdict(name string, addr netip.Addr, verdict tables.Action) {
	o.put(o.set(name), model.AddressMember(addr), verdict)
	o.dirtySets.add(name)
}

// RemoveVerdict no longer wants the entry.
func (o *objects) RemoveVerdict(name string, addr netip.Addr) {
	o.RemoveMembers(name, []model.Member{model.AddressMember(addr)})
}

// put wants the member with the verdict, nil but in verdict maps.
func (o *objects) put(s *set, m model.Member, verdict tables.Action) {
	old, ok := s.members.desired[m]
	if ok && old == verdict {
		return
	}
	o.refer(old, -1)
	o.refer(verdict, +1)
	s.add(m, verdict)
	s.changed = o.change()
}

// discard no longer wants the member.
func (o *objects) discard(s *set, m model.Member) {
	if old, ok := s.members.desired[m]; ok {
		o.refer(old, -1)
		s.remove(m)
		s.changed = o.change()
	}
}
