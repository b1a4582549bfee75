package nftables

import (
	"net/netip"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// CreateSet wants the set to exist.
func (t *Table) CreateSet(s ipsets.Set) {
	t.define(s.Name, kernel.Shape{Kind: s.Kind, Family: s.Family})
}

// CreateMap wants the verdict map to exist.
func (t *Table) CreateMap(name string, family model.Family) {
	t.define(name, kernel.Shape{Kind: model.Addresses, Family: family, Verdicts: true})
}

// define wants a set or map of the given shape. One that is wanted with
// another shape is emptied; the kernel cannot change a set's type, so the
// next Apply then builds the whole table anew.
func (t *Table) define(name string, sh kernel.Shape) {
	s := t.set(name)
	if s.wanted && s.shape == sh {
		return
	}
	if s.wanted {
		t.empty(s)
	}
	if s.shape != sh {
		t.recheck = t.recheck || s.shape != (kernel.Shape{})
		s.reshape(sh)
	}
	s.wanted, s.changed = true, t.change()
	t.touchedSets.add(name)
}

// RemoveSet no longer wants the set.
func (t *Table) RemoveSet(name string) {
	s, ok := t.sets[name]
	if !ok {
		return
	}
	t.empty(s)
	s.wanted, s.changed = false, t.change()
	t.touchedSets.add(name)
}

// empty wants no member of the set.
func (t *Table) empty(s *set) {
	for m := range s.members.want {
		t.discard(s, m)
	}
}

// AddMembers wants the members in the set. Members of a set that nobody wants
// are an error of the next Apply.
func (t *Table) AddMembers(name string, members []model.Member) {
	if len(members) == 0 {
		return
	}
	s := t.set(name)
	for _, m := range members {
		t.put(s, m, nil)
	}
	t.touchedSets.add(name)
}

// RemoveMembers no longer wants the members in the set.
func (t *Table) RemoveMembers(name string, members []model.Member) {
	s, ok := t.sets[name]
	if !ok {
		return
	}
	for _, m := range members {
		t.discard(s, m)
	}
	t.touchedSets.add(name)
}

// SetVerdict wants the entry, replacing one with the same address. An entry of
// a map that nobody wants is an error of the next Apply.
func (t *Table) SetVerdict(name string, addr netip.Addr, verdict tables.Action) {
	t.put(t.set(name), model.AddressMember(addr), verdict)
	t.touchedSets.add(name)
}

// RemoveVerdict no longer wants the entry.
func (t *Table) RemoveVerdict(name string, addr netip.Addr) {
	t.RemoveMembers(name, []model.Member{model.AddressMember(addr)})
}

// put wants the member with the verdict, nil but in verdict maps.
func (t *Table) put(s *set, m model.Member, verdict tables.Action) {
	old, ok := s.members.want[m]
	if ok && old == verdict {
		return
	}
	t.refer(old, -1)
	t.refer(verdict, +1)
	s.add(m, verdict)
	s.changed = t.change()
}

// discard no longer wants the member.
func (t *Table) discard(s *set, m model.Member) {
	if old, ok := s.members.want[m]; ok {
		t.refer(old, -1)
		s.remove(m)
		s.changed = t.change()
	}
}

// set returns the named set, new if need be.
func (t *Table) set(name string) *set {
	s, ok := t.sets[name]
	if !ok {
		s = newSet(name)
		t.sets[name] = s
	}
	return s
}
