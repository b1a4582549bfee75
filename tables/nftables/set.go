package nftables

import (
	"fmt"
	"net/netip"

	"github.com/gaissmai/bart"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// set is one set or verdict map by name: its desired and its observed state.
type set struct {
	name    string
	shape   kernel.Shape
	desired bool
	group   model.GroupID
	members members
	// prefixes are the desired members of a set of networks again, for finding overlaps; ranges counts the
	// members that are no prefixes.
	prefixes *bart.Lite
	ranges   int
	observed *observedSet // nil: not in the kernel
	count    int          // the members that the kernel had after the last commit
	refs     int
	// changed is the count of changes (objects.changes) at its last change.
	changed uint64
	// single has each member sent in a message of its own, until all are accepted.
	single bool
}

// observedSet is a set as the kernel holds it.
type observedSet struct {
	shape kernel.Shape
	// reload says that the kernel's elements are no state that we could have
	// written: they are to be flushed and written anew.
	reload bool
}

func newSet(name string) *set {
	return &set{name: name, members: newMembers(), prefixes: new(bart.Lite)}
}

// adopt makes found the observed state of the set; nil if the kernel has none.
func (s *set) adopt(found *kernel.Set) {
	s.observed = nil
	var held map[model.Member]tables.Action
	if found != nil {
		s.observed = &observedSet{shape: found.Shape, reload: !found.Regular}
		if found.Shape == s.shape {
			held = found.Members
		}
	}
	s.members.rebase(held)
}

// add wants the member; verdict is nil but in verdict maps.
func (s *set) add(m model.Member, verdict tables.Action) {
	if _, wanted := s.members.desired[m]; m.Last.IsValid() && !wanted {
		s.ranges++
	}
	s.members.set(m, verdict)
	if s.shape.Kind == model.Networks && !m.Last.IsValid() {
		s.prefixes.Insert(m.Prefix)
	}
}

// remove no longer wants the member.
func (s *set) remove(m model.Member) {
	s.members.remove(m)
	if m.Last.IsValid() {
		s.ranges--
		return
	}
	s.prefixes.Delete(m.Prefix)
}

// reshape changes the desired shape of the set.
func (s *set) reshape(sh kernel.Shape) {
	s.shape = sh
	s.prefixes = new(bart.Lite)
	if sh.Kind == model.Networks {
		for m := range s.members.desired {
			if !m.Last.IsValid() {
				s.prefixes.Insert(m.Prefix)
			}
		}
	}
}

// overlapping returns another desired prefix that shares addresses with p.
func (s *set) overlapping(p netip.Prefix) (netip.Prefix, bool) {
	for o := range s.prefixes.Supernets(p) {
		if o != p {
			return o, true
		}
	}
	for o := range s.prefixes.Subnets(p) {
		if o != p {
			return o, true
		}
	}
	return netip.Prefix{}, false
}

// overlap returns two desired members of a set with ranges that share addresses,
// or that it cannot have.
func (s *set) overlap() error {
	last := model.Member{}
	for _, c := range s.members.sorted() {
		m := c.Member
		if last.Prefix.IsValid() && !last.Range().To().Less(m.Prefix.Addr()) {
			return fmt.Errorf("member %s overlaps member %s", m, last)
		}
		last = m
	}
	return nil
}

// unused reports whether nothing is left to know about the set.
func (s *set) unused() bool {
	return !s.desired && s.observed == nil && s.refs == 0 && len(s.members.desired) == 0
}
