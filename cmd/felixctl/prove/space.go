package prove

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// field is one of a packet whose values are in classes.
type field uint8

// The fields, in the order of their variables.
const (
	destination field = iota
	source
	// port is the protocol, with the destination port, or the type and the code of ICMP.
	port
	in
	out
	mac
	// flags has one bit for each condition that is taken as it is: see space.flag.
	flags
	fields
)

// space are all packets of a family, in classes that no rule of the compared states tells apart: a field has the class i if its value is
// at least the i-th bound and below the next one, or the i-th name. Sets of packets are decision diagrams over the bits of the classes.
type space struct {
	*diagrams
	// begin is the first variable of a field, and bits their number.
	begin, bits [fields]int
	*partition
	ports []uint32
	// names are patterns of interfaces by the class that matches them. The last class is any other name.
	names []string
	macs  []model.MAC
	// conditions are those of flags. Spare bits are for conditions that are met on the way.
	conditions []string
	spans      map[[3]int]packets
	// sources are the variables of the source.
	sources []int
	// own are addresses of the node, one of which a masqueraded packet has. Nothing is known of it without one.
	own []netip.Addr
	// local are all addresses of the node, if they are known.
	local []netip.Addr
}

// spare is the number of conditions that the rules do not name: those on the address that a source is rewritten to.
const spare = 32

// line is the place of a port on the line of all protocols.
func line(p model.Protocol, port uint16) uint32 { return uint32(p)<<16 | uint32(port) }

// newSpace returns the packets of a family, in the classes that the states distinguish. The models tell the names and addresses, if they are of one mind.
func newSpace(family model.Family, models []*control.Model, states ...*dump.State) *space {
	return newSpaceFor(family, models, nil, states...)
}

// newSpaceFor is newSpace where some prefixes are told apart as well.
func newSpaceFor(family model.Family, models []*control.Model, apart []netip.Prefix, states ...*dump.State) *space {
	s := &space{partition: &partition{}, spans: map[[3]int]packets{}, ports: []uint32{0, 1 << 24}}
	s.bounds = []netip.Addr{netip.IPv4Unspecified()}
	if family == model.IPv6 {
		s.bounds[0] = netip.IPv6Unspecified()
	}
	for p := range uint32(256) {
		s.ports = append(s.ports, p<<16)
	}
	if len(models) > 0 && !slices.ContainsFunc(models, func(m *control.Model) bool { return !slices.Equal(m.HostAddresses, models[0].HostAddresses) }) {
		s.own = outgoing(models[0], family)
	}
	for _, a := range s.own {
		apart = append(apart, netip.PrefixFrom(a, a.BitLen()))
	}
	pods := map[netip.Addr]bool{}
	for _, m := range models {
		if len(m.HostAddresses) > 0 {
			s.local = append(s.local, localOf(m)...)
		}
		for _, pod := range m.Pods {
			for _, a := range pod.Addresses {
				pods[a] = true
				s.noteAddresses(a, a)
			}
		}
	}
	for _, a := range s.local {
		s.noteAddresses(a, a)
	}
	for _, p := range slices.Concat(apart, unrouted()) {
		s.noteMember(model.Member{Prefix: p})
	}
	s.noteStates(states)
	s.partition = newPartition(family, s.bounds)
	for _, p := range apart {
		s.dividePrefix(p)
	}
	for _, a := range s.local {
		s.divideRange(a, a)
	}
	for _, state := range states {
		s.divideBy(state)
	}
	s.number(func(a netip.Addr) int {
		switch {
		case pods[a]:
			return 0
		case slices.ContainsFunc(unrouted(), func(p netip.Prefix) bool { return p.Contains(a) }):
			return 2
		}
		return 1
	})
	s.layOut()
	return s
}

// layOut gives each field the variables of its classes.
func (s *space) layOut() {
	slices.Sort(s.ports)
	s.ports = slices.DeleteFunc(slices.Compact(s.ports), func(p uint32) bool { return p >= 1<<24 })
	slices.Sort(s.names)
	s.names = append(slices.Compact(s.names), "")
	slices.SortFunc(s.macs, func(a, b model.MAC) int { return cmp.Compare(a.String(), b.String()) })
	s.macs = append(slices.Compact(s.macs), model.MAC{})
	s.conditions = append(s.conditions, rateUsedUp)
	slices.Sort(s.conditions)
	s.conditions = slices.Compact(s.conditions)

	counts := [fields]int{len(s.first), len(s.first), len(s.ports), len(s.names), len(s.names), len(s.macs), 1}
	variables := 0
	for f := range fields {
		s.begin[f] = variables
		for 1<<s.bits[f] < counts[f] {
			s.bits[f]++
		}
		if f == flags {
			s.bits[f] = len(s.conditions) + spare
		}
		variables += s.bits[f]
	}
	s.diagrams = newDiagrams()
	for bit := range s.bits[source] {
		s.sources = append(s.sources, s.begin[source]+bit)
	}
}

// noteStates notes all bounds that the states ask for.
func (s *space) noteStates(states []*dump.State) {
	for _, state := range states {
		for _, set := range state.IPSets {
			s.noteSet(set)
		}
		for _, f := range state.Flows {
			s.noteFlow(f)
		}
		for _, t := range state.Tables {
			for _, set := range t.Sets {
				s.noteSet(set)
			}
			for _, c := range t.Chains {
				for i := range c.Rules {
					s.noteRule(&c.Rules[i])
				}
			}
		}
	}
}

func (s *space) noteAddresses(first, last netip.Addr) {
	if model.FamilyOf(first) != model.FamilyOf(s.bounds[0]) {
		return
	}
	s.bounds = append(s.bounds, first)
	if next := last.Next(); next.IsValid() {
		s.bounds = append(s.bounds, next)
	}
}

func (s *space) noteMember(m model.Member) {
	if m.Prefix.IsValid() {
		r := m.Range()
		s.noteAddresses(r.From(), r.To())
	}
	if m.Protocol != 0 {
		s.notePorts(m.Protocol, m.Port, m.Port)
	}
	if m.MAC != (model.MAC{}) {
		s.macs = append(s.macs, m.MAC)
	}
}

func (s *space) notePorts(p model.Protocol, first, last uint16) {
	s.ports = append(s.ports, line(p, first), line(p, last)+1)
}

func (s *space) noteSet(set *dump.Set) {
	if set.Kind == model.Grants || set.Kind == model.AnyPortGrants {
		for _, e := range set.Elements {
			if g := e.Grant(); g.Protocol != 0 {
				s.notePorts(g.Protocol, g.Port, g.Port)
			}
		}
		return
	}
	for _, e := range set.Elements {
		s.noteMember(e.Member)
	}
}

func (s *space) noteRule(r *dump.Rule) {
	for _, m := range r.Matches {
		switch m := m.(type) {
		case tables.MatchDestinationPorts:
			for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
				s.notePorts(p, m.First, m.Last)
			}
		case tables.MatchICMP:
			first, last := uint16(m.Type)<<8|uint16(m.Code), uint16(m.Type)<<8|uint16(m.Code)
			if m.AnyCode {
				first, last = uint16(m.Type)<<8, uint16(m.Type)<<8|255
			}
			for _, p := range []model.Protocol{model.ICMP, model.ICMPv6} {
				s.notePorts(p, first, last)
			}
		case tables.MatchPrefix:
			s.noteMember(model.Member{Prefix: m.Prefix})
		case tables.MatchConnSource:
			s.noteMember(model.Member{Prefix: m.Prefix})
			s.conditions = append(s.conditions, positive(m))
		case tables.MatchInterface:
			s.names = append(s.names, m.Name)
		case tables.MatchLocal, tables.MatchHopLimit, tables.MatchSYN, tables.MatchReset, tables.MatchConnDNAT, tables.MatchConnTranslated:
			s.conditions = append(s.conditions, positive(m))
		}
	}
}

// positive is the text of a condition that is not negated.
func positive(m tables.Match) string {
	switch m := m.(type) {
	case tables.MatchLocal:
		m.Negated = false
		return m.String()
	case tables.MatchHopLimit:
		m.Negated = false
		return m.String()
	case tables.MatchSYN:
		m.Negated = false
		return m.String()
	case tables.MatchConnTranslated:
		return tables.MatchConnDNAT{}.String()
	}
	return m.String()
}

// flag returns the packets for which a condition holds that is taken as it is: both states ask the same of a packet, and the answer
// is not known here.
func (s *space) flag(m tables.Match) packets {
	return s.flagNamed(positive(m))
}

// rateUsedUp is the condition that there have been more answers than the rate of a rule allows.
const rateUsedUp = "the rate of answers is used up"

// flagNamed returns the packets for which a condition of the name holds.
func (s *space) flagNamed(name string) packets {
	return s.variable(s.flagAt(name))
}

func (s *space) flagAt(name string) int { return s.begin[flags] + slices.Index(s.conditions, name) }

// classes returns the packets whose field has one of the classes, which are sorted.
func (s *space) classes(f field, sorted []int, count int) packets {
	var build func(bit, from int, some []int) packets
	build = func(bit, from int, some []int) packets {
		size := 1 << (s.bits[f] - bit)
		switch {
		case len(some) == 0:
			return nothing
		case len(some) == min(size, count-from):
			return everything
		}
		half := from + size/2
		at, _ := slices.BinarySearch(some, half)
		low := build(bit+1, from, some[:at])
		if half >= count { // bits that no class has are as in the last class
			return low
		}
		return s.choice(s.begin[f]+bit, build(bit+1, half, some[at:]), low)
	}
	return build(0, 0, sorted)
}

// span returns the packets whose field has a class from first to last.
func (s *space) span(f field, first, last, count int) packets {
	key := [3]int{int(f), first, last}
	if known, has := s.spans[key]; has {
		return known
	}
	all := make([]int, 0, last-first+1)
	for c := first; c <= last; c++ {
		all = append(all, c)
	}
	s.spans[key] = s.classes(f, all, count)
	return s.spans[key]
}

// those returns the classes below count that a condition holds for.
func those(count int, has func(class int) bool) (all []int) {
	for c := range count {
		if has(c) {
			all = append(all, c)
		}
	}
	return all
}

// address returns the packets with an address in a range at an end.
func (s *space) address(side tables.Side, first, last netip.Addr) packets {
	return s.any(end(side), s.within(first, last))
}

// any returns the packets with an address of some intervals in a field.
func (s *space) any(f field, some []owned) packets {
	return s.classes(f, s.partition.classes(some), len(s.first))
}

// protocolPorts returns the packets of a protocol with a port in a range.
func (s *space) protocolPorts(p model.Protocol, first, last uint16) packets {
	return s.span(port, below(slices.BinarySearch(s.ports, line(p, first))), below(slices.BinarySearch(s.ports, line(p, last))), len(s.ports))
}

// named returns the packets of an interface by its name or pattern.
func (s *space) named(side tables.Side, pattern string) packets {
	f := in
	if side == tables.Destination {
		f = out
	}
	return s.classes(f, those(len(s.names), func(c int) bool { return nameMatches(pattern, s.names[c]) }), len(s.names))
}

// nameMatches reports whether all interfaces of a class match a pattern. The class of a pattern that ends in '*' has the names that no
// longer pattern or name of its own matches.
func nameMatches(pattern, class string) bool {
	if n := len(pattern) - 1; n >= 0 && pattern[n] == '*' {
		return len(class) >= n && class[:n] == pattern[:n]
	}
	return pattern == class
}

func end(s tables.Side) field {
	if s == tables.Destination {
		return destination
	}
	return source
}

// value returns the class of a field in packets that have some variables.
func (s *space) value(f field, has []int, count int) int {
	c := 0
	for bit := range s.bits[f] {
		if c <<= 1; slices.Contains(has, s.begin[f]+bit) {
			c |= 1
		}
	}
	return min(c, count-1)
}

// interfaceIs returns the packets whose interface at an end has a name.
func (s *space) interfaceIs(f field, name string) packets {
	class := ""
	for _, p := range s.names {
		if name != "" && nameMatches(p, name) && len(p) > len(class) {
			class = p
		}
	}
	return s.classes(f, those(len(s.names), func(c int) bool { return s.names[c] == class }), len(s.names))
}
