package ipsets

import (
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/model"
)

// Ranges returns the addresses of members of Networks as sorted ranges that neither
// overlap nor touch. The longest prefix of an address decides. There is at most one
// range for each prefix and each exception.
func Ranges(members []model.Member) []netipx.IPRange {
	sorted := slices.SortedFunc(slices.Values(members), model.Member.Compare)
	var s sweep
	for _, m := range sorted {
		s.enter(m)
	}
	for len(s.open) > 0 {
		s.leave()
	}
	return s.ranges
}

// HasExceptions reports whether a member is an exception.
func HasExceptions(members []model.Member) bool {
	return slices.ContainsFunc(members, func(m model.Member) bool { return m.Except })
}

// sweep goes through sorted prefixes, from address to address.
type sweep struct {
	// open are the prefixes around the position, the longest one last.
	open   []model.Member
	at     netip.Addr
	ranges []netipx.IPRange
}

func (s *sweep) enter(m model.Member) {
	for len(s.open) > 0 && !s.open[len(s.open)-1].Prefix.Overlaps(m.Prefix) {
		s.leave()
	}
	first := m.Prefix.Addr()
	if len(s.open) > 0 && s.at.Less(first) {
		s.take(first.Prev())
	}
	s.at = first
	s.open = append(s.open, m)
}

// leave goes to the end of the longest prefix.
func (s *sweep) leave() {
	last := netipx.PrefixLastIP(s.open[len(s.open)-1].Prefix)
	if s.at.IsValid() && s.at.Compare(last) <= 0 {
		s.take(last)
		s.at = last.Next()
	}
	s.open = s.open[:len(s.open)-1]
}

// take adds the range from the position to the last address, unless the longest
// prefix is an exception.
func (s *sweep) take(last netip.Addr) {
	if s.open[len(s.open)-1].Except {
		return
	}
	if n := len(s.ranges); n > 0 && s.ranges[n-1].To().Next() == s.at {
		s.ranges[n-1] = netipx.IPRangeFrom(s.ranges[n-1].From(), last)
		return
	}
	s.ranges = append(s.ranges, netipx.IPRangeFrom(s.at, last))
}

// rangeSets turns Networks with exceptions into ranges.
type rangeSets struct {
	Sets
	networks map[string]*rangeSet
}

// rangeSet is a set of Networks: its members, and their ranges once the set has had an
// exception.
type rangeSet struct {
	members map[model.Member]struct{}
	ranged  bool
	ranges  []model.Member
}

// WithRanges returns a driver for sets that know ranges but no exceptions, as
// the interval sets of nftables: members of Networks become ranges if some of them
// are exceptions.
func WithRanges(s Sets) Sets { return &rangeSets{Sets: s, networks: map[string]*rangeSet{}} }

// CreateSet implements Sets.
func (r *rangeSets) CreateSet(s Set) {
	if s.Kind != model.Networks {
		delete(r.networks, s.Name)
	} else if r.networks[s.Name] == nil {
		r.networks[s.Name] = &rangeSet{members: map[model.Member]struct{}{}}
	}
	r.Sets.CreateSet(s)
}

// AddMembers implements Sets.
func (r *rangeSets) AddMembers(name string, members []model.Member) {
	s := r.networks[name]
	if s == nil {
		r.Sets.AddMembers(name, members)
		return
	}
	if !s.ranged && HasExceptions(members) {
		s.ranged = true
		s.ranges = slices.SortedFunc(maps.Keys(s.members), model.Member.Compare)
	}
	for _, m := range members {
		s.members[m] = struct{}{}
	}
	if !s.ranged {
		r.Sets.AddMembers(name, members)
		return
	}
	r.update(name, s)
}

// RemoveMembers implements Sets.
func (r *rangeSets) RemoveMembers(name string, members []model.Member) {
	s := r.networks[name]
	if s == nil {
		r.Sets.RemoveMembers(name, members)
		return
	}
	for _, m := range members {
		delete(s.members, m)
	}
	if !s.ranged {
		r.Sets.RemoveMembers(name, members)
		return
	}
	r.update(name, s)
}

// RemoveSet implements Sets.
func (r *rangeSets) RemoveSet(name string) {
	delete(r.networks, name)
	r.Sets.RemoveSet(name)
}

// update updates the ranges of a set. It removes old ranges first, since new ones may
// overlap them.
func (r *rangeSets) update(name string, s *rangeSet) {
	var now []model.Member
	for _, one := range Ranges(slices.Collect(maps.Keys(s.members))) {
		now = append(now, model.RangeMember(one))
	}
	gone, come := difference(s.ranges, now), difference(now, s.ranges)
	if len(gone) > 0 {
		r.Sets.RemoveMembers(name, gone)
	}
	if len(come) > 0 {
		r.Sets.AddMembers(name, come)
	}
	s.ranges = now
}

// difference returns the members of a that are not in b.
func difference(a, b []model.Member) []model.Member {
	in := make(map[model.Member]struct{}, len(b))
	for _, m := range b {
		in[m] = struct{}{}
	}
	return slices.DeleteFunc(slices.Clone(a), func(m model.Member) bool { _, ok := in[m]; return ok })
}
