package prove

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Difference has the packets that one pair of ends tells apart.
type Difference struct {
	A string `json:"a"`
	B string `json:"b"`
	// Way and Connection are those of Packet, one of the smallest. Places are all ways and states of connections.
	Way        string   `json:"way"`
	Connection string   `json:"connection"`
	Packet     Packet   `json:"packet"`
	Places     []string `json:"places"`
	Regions    []Region `json:"regions"`
	// MoreRegions is set if Regions lack some of the packets.
	MoreRegions bool `json:"moreRegions,omitempty"`
}

// Packet is one packet. From and To are the names of its ends, "" if they are not known. In and Out are interfaces of the host, "" for any other.
type Packet struct {
	From        string         `json:"from,omitempty"`
	To          string         `json:"to,omitempty"`
	Source      netip.Addr     `json:"source"`
	Destination netip.Addr     `json:"destination"`
	Protocol    model.Protocol `json:"protocol"`
	Port        uint16         `json:"port"`
	In          string         `json:"in,omitempty"`
	Out         string         `json:"out,omitempty"`
	// Assumed are conditions that hold for it.
	Assumed []string `json:"assumed,omitempty"`
}

// String returns the packet with the names of its ends.
func (p Packet) String() string {
	end := func(a netip.Addr, name string) string {
		if name != "" {
			return fmt.Sprintf("%s (%s)", a, name)
		}
		return a.String()
	}
	return fmt.Sprintf("%s -> %s %s", end(p.Source, p.From), end(p.Destination, p.To), ports(p.Protocol, p.Port, p.Port))
}

// Region are packets between groups of addresses, to a group of ports, in words. Sources and Destinations have all addresses of the groups.
type Region struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Ports       string `json:"ports"`

	Sources      []netipx.IPRange `json:"sources"`
	Destinations []netipx.IPRange `json:"destinations"`
}

// place is where some packets differ.
type place struct {
	way, connection string
	some            packets
}

// difference are packets that differ in one way.
type difference struct {
	some   packets
	places []place
}

// maxRegions bounds the regions of a difference.
const maxRegions = 1000

// conclude writes down what differs in a family.
func (p *proof) conclude(s *space) {
	for key, d := range p.found {
		at := d.places[0]
		for _, other := range d.places {
			if other.connection == "new" && at.connection != "new" {
				at = other
			}
		}
		out := Difference{A: key[0], B: key[1], Way: at.way, Connection: at.connection, Packet: p.smallest(s, at.some)}
		out.Regions, out.MoreRegions = p.regions(s, d.some)
		for _, other := range d.places {
			out.Places = append(out.Places, other.way+": "+other.connection)
		}
		p.Differences = append(p.Differences, out)
	}
	sortDifferences(p.Differences)
}

// smallest returns the packet of a set with the lowest values, one that a pod sends, to a pod, and that a tool can send, if there is one.
func (p *proof) smallest(s *space, some packets) Packet {
	var pods []owned
	for _, m := range p.models {
		for _, pod := range m.Pods {
			for _, a := range pod.Addresses {
				pods = s.ofFamily(pods, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	routed := s.not(s.or(s.prefixes(source, unrouted()), s.prefixes(destination, unrouted())))
	for _, better := range []packets{
		routed, s.any(source, pods), s.any(destination, pods), s.and(s.protocolPorts(model.TCP, 1, 65535), s.isSYN()), s.protocolPorts(model.TCP, 1, 65535),
		s.protocolPorts(model.UDP, 1, 65535), s.protocolPorts(model.ICMP, 0, 65535), s.protocolPorts(model.ICMPv6, 0, 65535),
	} {
		if fewer := s.and(some, better); fewer != nothing {
			some = fewer
		}
	}
	has := s.one(some)
	at := s.ports[s.value(port, has, len(s.ports))]
	out := Packet{
		Destination: s.first[s.value(destination, has, len(s.first))],
		Source:      s.first[s.value(source, has, len(s.first))],
		Protocol:    model.Protocol(at >> 16), Port: uint16(at),
		In:  s.names[s.value(in, has, len(s.names))],
		Out: s.names[s.value(out, has, len(s.names))],
	}
	if _, alone := slices.BinarySearch(s.ports, at+1); at&0xffff == 0 && !alone && !out.Protocol.IsICMP() {
		out.Port = 1
	}
	out.From, out.To = p.names.Address(out.Source), p.names.Address(out.Destination)
	for i, c := range s.conditions {
		if slices.Contains(has, s.begin[flags]+i) {
			out.Assumed = append(out.Assumed, c)
		}
	}
	return out
}

// isSYN returns the packets that ask for a connection of TCP, all if no rule tells them apart.
func (s *space) isSYN() packets {
	if slices.Contains(s.conditions, tables.MatchSYN{}.String()) {
		return s.flag(tables.MatchSYN{})
	}
	return everything
}

// prefixes returns the packets with an address of some prefixes in a field.
func (s *space) prefixes(f field, all []netip.Prefix) packets {
	var some []owned
	for _, p := range all {
		some = s.ofFamily(some, p)
	}
	return s.any(f, some)
}

// ofFamily adds the intervals of a prefix, if it is of the family.
func (s *space) ofFamily(all []owned, p netip.Prefix) []owned {
	if model.FamilyOf(p.Addr()) != s.family {
		return all
	}
	span := netipx.RangeOfPrefix(p)
	return append(all, s.within(span.From(), span.To())...)
}

// unrouted are the addresses whose packets no router forwards: RFC 6890.
func unrouted() (all []netip.Prefix) {
	for _, p := range []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127", "fe80::/10", "ff00::/8"} {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// under returns the classes of a field by what is left of a set of packets with each of them. Fields before it must be decided.
func (s *space) under(f field, count int, some packets) map[packets][]int {
	groups := map[packets][]int{}
	for c := range count {
		left := some
		for bit := range s.bits[f] {
			low, high := s.parts(left, int32(s.begin[f]+bit))
			if left = low; c>>(s.bits[f]-1-bit)&1 == 1 {
				left = high
			}
		}
		if left != nothing {
			groups[left] = append(groups[left], c)
		}
	}
	return groups
}

// regions merges packets into few regions, those with the lowest addresses first, and reports whether there are more.
func (p *proof) regions(s *space, some packets) (all []Region, more bool) {
	var rest []int
	for v := s.begin[in]; v < s.begin[flags]+s.bits[flags]; v++ {
		rest = append(rest, v)
	}
	byClass := func(groups map[packets][]int) []packets {
		return slices.SortedFunc(maps.Keys(groups), func(a, b packets) int { return groups[a][0] - groups[b][0] })
	}
	destinations := s.under(destination, len(s.first), s.whatever(rest, some))
	for _, d := range byClass(destinations) {
		sources := s.under(source, len(s.first), d)
		for _, from := range byClass(sources) {
			var ports []int
			for _, with := range s.under(port, len(s.ports), from) {
				ports = append(ports, with...)
			}
			if len(all) == maxRegions {
				return all, true
			}
			all = append(all, Region{
				p.addresses(s, sources[from]), p.addresses(s, destinations[d]), portsText(s, ports), s.ranges(sources[from]), s.ranges(destinations[d]),
			})
		}
	}
	return all, false
}

// ranges returns all addresses of some classes.
func (s *space) ranges(classes []int) (all []netipx.IPRange) {
	for i, class := range s.class {
		if !slices.Contains(classes, class) {
			continue
		}
		first, last := s.bounds[i], s.end(i)
		if n := len(all); n > 0 && all[n-1].To().Next() == first {
			first, all = all[n-1].From(), all[:n-1]
		}
		all = append(all, netipx.IPRangeFrom(first, last))
	}
	return all
}

// end returns the last address of an interval.
func (s *space) end(i int) netip.Addr {
	if i+1 < len(s.bounds) {
		return s.bounds[i+1].Prev()
	}
	last, _ := s.bounds[0].Prefix(0)
	return netipx.PrefixLastIP(last)
}

// listed joins words, the first few of them.
func listed(words []string) string {
	const most = 4
	if more := len(words) - most; more > 1 {
		return strings.Join(words[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(words, ", ")
}

// addresses describes classes of addresses: pods by their names, others by ranges, the largest first.
func (p *proof) addresses(s *space, classes []int) string {
	if len(classes) == len(s.first) {
		return "any"
	}
	has := map[int]bool{}
	for _, c := range classes {
		has[c] = true
	}
	var names, ranges []string
	inNamespace := map[string]int{}
	add := func(from, to netip.Addr) {
		if name := p.names.Address(from); from == to && name != "" {
			ns, _, isPod := strings.Cut(name, "/")
			if names = append(names, name); isPod {
				inNamespace[ns]++
			}
			return
		}
		span := netipx.IPRangeFrom(from, to)
		if prefix, is := span.Prefix(); is {
			ranges = append(ranges, strings.TrimSuffix(prefix.String(), fmt.Sprintf("/%d", from.BitLen())))
			return
		}
		ranges = append(ranges, span.String())
	}
	for i := 0; i < len(s.bounds); i++ {
		if !has[s.class[i]] {
			continue
		}
		from := i
		named := p.names.Address(s.bounds[i]) != "" && s.end(i) == s.bounds[i]
		for !named && i+1 < len(s.bounds) && has[s.class[i+1]] && (p.names.Address(s.bounds[i+1]) == "" || s.end(i+1) != s.bounds[i+1]) {
			i++
		}
		add(s.bounds[from], s.end(i))
	}
	return listed(append(p.wholeNamespaces(s.family, names, inNamespace), ranges...))
}

// wholeNamespaces writes the pods of a namespace as one, if all of them are there.
func (p *proof) wholeNamespaces(f model.Family, names []string, count map[string]int) (all []string) {
	pods := map[string]int{}
	if len(p.models) > 0 {
		for _, pod := range p.models[0].Pods {
			if slices.ContainsFunc(pod.Addresses, func(a netip.Addr) bool { return model.FamilyOf(a) == f }) {
				pods[pod.ID.Namespace]++
			}
		}
	}
	for _, name := range names {
		ns, _, _ := strings.Cut(name, "/")
		if pods[ns] > 1 && count[ns] == pods[ns] {
			name = ns + "/*"
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// ports names a range of ports of a protocol.
func ports(p model.Protocol, first, last uint16) string {
	switch {
	case first == 0 && last == 65535 || p.IsICMP() && first == 0 && last == 0:
		return p.String()
	case p.IsICMP() && first>>8 != last>>8:
		return fmt.Sprintf("%s types %d-%d", p, first>>8, last>>8)
	case p.IsICMP():
		return model.PortRange{Protocol: p, First: first, Last: last}.String()
	case first == last:
		return fmt.Sprintf("%s %d", p, first)
	}
	return fmt.Sprintf("%s %d-%d", p, first, last)
}

// portsText describes classes of ports.
func portsText(s *space, classes []int) string {
	if len(classes) == len(s.ports) {
		return "any protocol"
	}
	slices.Sort(classes)
	var words, others []string
	end := func(c int) uint32 {
		if c+1 < len(s.ports) {
			return s.ports[c+1] - 1
		}
		return 1<<24 - 1
	}
	for i := 0; i < len(classes); i++ {
		first, last := s.ports[classes[i]], end(classes[i])
		for i+1 < len(classes) && s.ports[classes[i+1]] == last+1 && last&0xffff != 0xffff {
			i++
			last = end(classes[i])
		}
		switch p := model.Protocol(first >> 16); p {
		case model.TCP, model.UDP, model.SCTP, model.ICMP, model.ICMPv6:
			words = append(words, ports(p, uint16(first), uint16(last)))
		default:
			others = append(others, p.String())
		}
	}
	if len(others) > 2 {
		others = []string{"other protocols"}
	}
	return listed(append(words, others...))
}

// outgoing returns the addresses of a family that a model's node may masquerade with: those of no pod network, if there are others.
func outgoing(m *control.Model, f model.Family) (all []netip.Addr) {
	ofPods := func(a netip.Addr) bool {
		return slices.ContainsFunc(m.Nodes, func(n *model.Node) bool {
			return slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
		})
	}
	for _, a := range m.HostAddresses {
		if model.FamilyOf(a) == f && !ofPods(a) && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return m.HostAddresses
	}
	return all
}

// localOf returns all addresses that a model's node has itself.
func localOf(m *control.Model) (all []netip.Addr) {
	all = slices.Clone(m.HostAddresses)
	for _, n := range m.Nodes {
		if n.Name == m.Node {
			all = append(all, n.Addresses...)
			for _, p := range n.PodCIDRs {
				all = append(all, p.Addr().Next())
			}
		}
	}
	return all
}
