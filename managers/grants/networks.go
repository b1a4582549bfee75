package grants

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// networks are the networks of groups in one family, cut into ranges with one identity each.
type networks struct {
	family     model.Family
	identities *identities
	// members are those of groups, also of those that no rule has, and ranges those that groups have in segments.
	members map[model.GroupID]map[model.Member]struct{}
	ranges  map[model.GroupID]map[netipx.IPRange]struct{}
	dirty   map[model.GroupID]struct{}
	// segments are disjoint and sorted. Two that touch have different groups.
	segments []segment
	// programmed are the identities of segments, touched those that may have changed.
	programmed map[netipx.IPRange]*identity
	touched    map[netipx.IPRange]struct{}
}

// segment is a range of addresses that are in the same groups.
type segment struct {
	netipx.IPRange
	groups []model.GroupID
}

func newNetworks(f model.Family, s *identities) *networks {
	return &networks{
		family: f, identities: s, members: map[model.GroupID]map[model.Member]struct{}{}, ranges: map[model.GroupID]map[netipx.IPRange]struct{}{},
		dirty: map[model.GroupID]struct{}{}, programmed: map[netipx.IPRange]*identity{}, touched: map[netipx.IPRange]struct{}{},
	}
}

// set notes whether a group has a member.
func (n *networks) set(id model.GroupID, m model.Member, has bool) {
	if n.members[id] == nil {
		n.members[id] = map[model.Member]struct{}{}
	}
	if has {
		n.members[id][m] = struct{}{}
	} else {
		delete(n.members[id], m)
	}
	n.dirty[id] = struct{}{}
}

// forget notes that a group is gone.
func (n *networks) forget(id model.GroupID) {
	delete(n.members, id)
	n.dirty[id] = struct{}{}
}

// settle cuts the ranges anew where groups have changed, and programs the identities there.
func (n *networks) settle(active func(model.GroupID) bool, to tables.NumberMaps) {
	for _, id := range slices.Sorted(maps.Keys(n.dirty)) {
		var now []netipx.IPRange
		if active(id) {
			now = ipsets.Ranges(slices.Collect(maps.Keys(n.members[id])))
		}
		wanted := map[netipx.IPRange]struct{}{}
		for _, r := range now {
			wanted[r] = struct{}{}
		}
		before := n.ranges[id]
		n.change(slices.DeleteFunc(sortedRanges(before), func(r netipx.IPRange) bool { return has(wanted, r) }), id, false)
		n.change(slices.DeleteFunc(slices.Clone(now), func(r netipx.IPRange) bool { return has(before, r) }), id, true)
		if n.ranges[id] = wanted; len(now) == 0 {
			delete(n.ranges, id)
		}
	}
	n.dirty = map[model.GroupID]struct{}{} // as ledger.changed
	n.program(to)
}

func has(all map[netipx.IPRange]struct{}, r netipx.IPRange) bool {
	_, ok := all[r]
	return ok
}

func sortedRanges(all map[netipx.IPRange]struct{}) []netipx.IPRange {
	return slices.SortedFunc(maps.Keys(all), func(a, b netipx.IPRange) int {
		return cmp.Or(a.From().Compare(b.From()), a.To().Compare(b.To()))
	})
}

// change adds a group to the addresses of ranges, or removes it. The ranges are sorted and disjoint. It takes time for
// the segments between the first and the last of them.
func (n *networks) change(ranges []netipx.IPRange, id model.GroupID, has bool) {
	if len(ranges) == 0 {
		return
	}
	// These share addresses with the ranges, or touch them.
	first, _ := slices.BinarySearchFunc(n.segments, ranges[0].From(), func(s segment, a netip.Addr) int {
		if s.To().Less(a) && s.To().Next() != a {
			return -1
		}
		return 1
	})
	end := ranges[len(ranges)-1].To()
	last, _ := slices.BinarySearchFunc(n.segments, end, func(s segment, a netip.Addr) int {
		if s.From().Compare(a) <= 0 || s.From() == a.Next() {
			return -1
		}
		return 1
	})
	old := n.segments[first:last]
	cut := cutSegments(old, ranges, func(groups []model.GroupID) []model.GroupID { return with(groups, id, has) })
	n.touch(old, cut)
	n.segments = slices.Replace(n.segments, first, last, cut...)
}

// cutSegments returns segments with other groups for the addresses of ranges.
func cutSegments(old []segment, ranges []netipx.IPRange, change func([]model.GroupID) []model.GroupID) (cut []segment) {
	emit := func(from, to netip.Addr, groups []model.GroupID) {
		if len(groups) == 0 {
			return
		}
		if k := len(cut) - 1; k >= 0 && cut[k].To().Next() == from && slices.Equal(cut[k].groups, groups) {
			cut[k].IPRange = netipx.IPRangeFrom(cut[k].From(), to)
			return
		}
		cut = append(cut, segment{netipx.IPRangeFrom(from, to), groups})
	}
	rest := slices.Clone(old)
	for _, r := range ranges {
		for len(rest) > 0 && rest[0].To().Less(r.From()) {
			emit(rest[0].From(), rest[0].To(), rest[0].groups)
			rest = rest[1:]
		}
		// at is the first address of the range that is not in cut; invalid if all are.
		for at := r.From(); at.IsValid(); {
			if len(rest) == 0 || r.To().Less(rest[0].From()) {
				emit(at, r.To(), change(nil))
				break
			}
			s := rest[0]
			if s.From().Less(at) {
				emit(s.From(), at.Prev(), s.groups)
			} else if at.Less(s.From()) {
				emit(at, s.From().Prev(), change(nil))
				at = s.From()
			}
			to := s.To()
			if r.To().Less(to) {
				to = r.To()
				rest[0].IPRange = netipx.IPRangeFrom(to.Next(), s.To())
			} else {
				rest = rest[1:]
			}
			emit(at, to, change(s.groups))
			if at = to.Next(); to == r.To() {
				at = netip.Addr{}
			}
		}
	}
	for _, s := range rest {
		emit(s.From(), s.To(), s.groups)
	}
	return cut
}

// touch notes the segments that are not in both lists.
func (n *networks) touch(old, now []segment) {
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(old) > 0 && len(now) > 0 && old[0].IPRange == now[0].IPRange:
			if !slices.Equal(old[0].groups, now[0].groups) {
				n.touched[now[0].IPRange] = struct{}{}
			}
			old, now = old[1:], now[1:]
		case len(now) == 0 || len(old) > 0 && old[0].From().Compare(now[0].From()) <= 0:
			n.touched[old[0].IPRange] = struct{}{}
			old = old[1:]
		default:
			n.touched[now[0].IPRange] = struct{}{}
			now = now[1:]
		}
	}
}

// groupsOf returns the groups of a segment, nil if there is no such segment.
func (n *networks) groupsOf(r netipx.IPRange) []model.GroupID {
	i, found := slices.BinarySearchFunc(n.segments, r.From(), func(s segment, a netip.Addr) int { return s.From().Compare(a) })
	if !found || n.segments[i].IPRange != r {
		return nil
	}
	return n.segments[i].groups
}

// program programs the identities of the segments that may have changed.
func (n *networks) program(to tables.NumberMaps) {
	order := sortedRanges(n.touched)
	n.touched = map[netipx.IPRange]struct{}{} // as ledger.changed
	name := rules.NetworkMap(n.family)
	for _, r := range order {
		was, now := n.programmed[r], n.identities.hold(n.groupsOf(r))
		n.identities.release(was)
		if was == now {
			continue
		}
		if now == nil {
			delete(n.programmed, r)
			to.RemoveNumber(name, model.RangeMember(r))
			continue
		}
		n.programmed[r] = now
		to.SetNumber(name, model.RangeMember(r), now.number)
	}
}
