package openflow

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"antrea.io/libOpenflow/openflow15"
)

// Ethernet types and protocol numbers with a word of their own in ovs-ofctl's
// notation.
const (
	etherIPv4   = 0x0800
	etherARP    = 0x0806
	etherIPv6   = 0x86dd
	protoICMPv6 = 58
)

// Match is what a flow matches: a conjunction of field values. It is a value:
// each method returns a new Match with one field more and leaves its receiver
// alone. The zero Match matches every packet.
type Match struct{ terms []term }

// Any matches every packet.
func Any() Match { return Match{} }

// IPv4 matches IPv4 packets.
func IPv4() Match { return Match{}.with(EthType, uint16Bytes(etherIPv4), nil) }

// IPv6 matches IPv6 packets.
func IPv6() Match { return Match{}.with(EthType, uint16Bytes(etherIPv6), nil) }

// ARP matches ARP packets.
func ARP() Match { return Match{}.with(EthType, uint16Bytes(etherARP), nil) }

// ICMPv6 matches ICMPv6 packets of one type.
func ICMPv6(icmpType uint8) Match {
	return IPv6().with(IPProto, []byte{protoICMPv6}, nil).with(ICMPv6Type, []byte{icmpType}, nil)
}

// NeighbourDiscovery matches ICMPv6 packets of one type with code 0, the
// prerequisite of the NDTarget, NDSll and NDTll fields.
func NeighbourDiscovery(icmpType uint8) Match {
	return ICMPv6(icmpType).with(ICMPv6Code, []byte{0}, nil)
}

// InPort matches the port by which the packet came.
func (m Match) InPort(port uint32) Match { return m.with(InPort, uint32Bytes(port), nil) }

// TunnelSource matches the source address of the tunnel's outer header.
func (m Match) TunnelSource(a netip.Addr) Match { return m.Addr(TunSrc, a) }

// Bits matches the bits of a register that mask selects.
func (m Match) Bits(register Field, value, mask uint32) Match {
	return m.with(register, uint32Bytes(value), uint32Bytes(mask))
}

// MAC matches an Ethernet address in a field of that kind.
func (m Match) MAC(f Field, a net.HardwareAddr) Match { return m.with(f, a, nil) }

// Addr matches an IP address in a field of that kind.
func (m Match) Addr(f Field, a netip.Addr) Match { return m.with(f, a.AsSlice(), nil) }

// Prefix matches a prefix in a field of that kind; a single address is matched
// without a mask.
func (m Match) Prefix(f Field, p netip.Prefix) Match {
	if p.IsSingleIP() {
		return m.Addr(f, p.Addr())
	}
	return m.with(f, p.Masked().Addr().AsSlice(), net.CIDRMask(p.Bits(), p.Addr().BitLen()))
}

// ARPOperation matches the ARP operation: 1 request, 2 reply.
func (m Match) ARPOperation(op uint16) Match { return m.with(ARPOp, uint16Bytes(op), nil) }

// with returns a copy with one more term, in wire order. A field given twice
// keeps the later value.
func (m Match) with(f Field, value, mask []byte) Match {
	terms := make([]term, 0, len(m.terms)+1)
	for _, t := range m.terms {
		if t.field != f {
			terms = append(terms, t)
		}
	}
	terms = append(terms, term{f, slices.Clone(value), mask})
	slices.SortStableFunc(terms, func(a, b term) int { return int(a.field) - int(b.field) })
	return Match{terms}
}

// String returns the match in ovs-ofctl notation, empty if it matches all.
func (m Match) String() string {
	words := make([]string, 0, len(m.terms))
	for _, t := range m.terms {
		words = append(words, m.word(t)...)
	}
	return strings.Join(words, ",")
}

// word renders one term; the Ethernet type and protocol have short words, and
// one for both where there is one.
func (m Match) word(t term) []string {
	switch {
	case t.field == EthType && number(t.value) == etherIPv4:
		return []string{"ip"}
	case t.field == EthType && number(t.value) == etherARP:
		return []string{"arp"}
	case t.field == EthType && number(t.value) == etherIPv6:
		if m.isICMPv6() {
			return []string{"icmp6"}
		}
		return []string{"ipv6"}
	case t.field == IPProto && m.isICMPv6():
		return nil
	}
	return []string{t.field.spec().match + "=" + t.valueString()}
}

func (m Match) isICMPv6() bool {
	return slices.ContainsFunc(m.terms, func(t term) bool { return t.field == IPProto && number(t.value) == protoICMPv6 }) &&
		slices.ContainsFunc(m.terms, func(t term) bool { return t.field == EthType && number(t.value) == etherIPv6 })
}

func (m Match) wire() (*openflow15.Match, error) {
	out := openflow15.NewMatch()
	for _, t := range m.terms {
		f, err := t.wire()
		if err != nil {
			return nil, err
		}
		out.AddField(*f)
	}
	return out, nil
}
