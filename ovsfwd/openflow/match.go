package openflow

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// Ethernet types with a word of their own in ovs-ofctl's notation.
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
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

// ICMPv4 matches ICMP packets of IPv4 of one type.
func ICMPv4(icmpType uint8) Match {
	return IPv4().with(IPProto, []byte{byte(model.ICMP)}, nil).with(ICMPv4Type, []byte{icmpType}, nil)
}

// ICMPv6 matches ICMPv6 packets of one type.
func ICMPv6(icmpType uint8) Match {
	return IPv6().with(IPProto, []byte{byte(model.ICMPv6)}, nil).with(ICMPv6Type, []byte{icmpType}, nil)
}

// NeighbourDiscovery matches ICMPv6 packets of one type with code 0, the
// prerequisite of the NDTarget, NDSll and NDTll fields.
func NeighbourDiscovery(icmpType uint8) Match {
	return ICMPv6(icmpType).with(ICMPv6Code, []byte{0}, nil)
}

// InPort matches the port by which the packet came.
func (m Match) InPort(port uint32) Match { return m.with(InPort, uint32Bytes(port), nil) }

// TunnelSource matches the source address of the tunnel's outer header.
func (m Match) TunnelSource(a netip.Addr) Match { return m.Addr(TunnelSource(a), a) }

// Bits matches the bits of a register that mask selects.
func (m Match) Bits(register Field, value, mask uint32) Match {
	return m.with(register, uint32Bytes(value), uint32Bytes(mask))
}

// MAC matches an Ethernet address in a field of that kind.
func (m Match) MAC(f Field, a net.HardwareAddr) Match { return m.with(f, a, nil) }

// Fragment matches all fragments of IP packets.
func (m Match) Fragment() Match {
	const fragmented = 1
	return m.with(IPFrag, []byte{fragmented}, []byte{fragmented})
}

// TTL matches the time to live, or the hop limit.
func (m Match) TTL(hops uint8) Match { return m.with(IPTTL, []byte{hops}, nil) }

// LaterFragment matches fragments of IP packets other than the first: they have
// no ports. The field has two bits, and the switch returns a match of both without
// a mask (ovs-fields(7)).
func (m Match) LaterFragment() Match {
	const fragmented, later = 1, 2
	return m.with(IPFrag, []byte{fragmented | later}, nil)
}

// MaskedMAC matches the bits of an Ethernet address that mask selects.
func (m Match) MaskedMAC(f Field, a, mask net.HardwareAddr) Match { return m.with(f, a, mask) }

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

// Protocol matches a transport protocol over the IP version that the match has
// (IPv4 where it names none).
func (m Match) Protocol(p model.Protocol) Match {
	if _, found := m.value(EthType); !found {
		m = m.with(EthType, uint16Bytes(etherIPv4), nil)
	}
	return m.with(IPProto, []byte{byte(p)}, nil)
}

// Port matches the bits of a transport port that mask selects: 0xffff for one
// port, none for all of them.
func (m Match) Port(f Field, value, mask uint16) Match {
	if mask == 0 {
		return m
	}
	return m.with(f, uint16Bytes(value), uint16Bytes(mask))
}

// ICMPMessage adds the type, and perhaps the code, to a match on ICMP or ICMPv6.
func (m Match) ICMPMessage(kind uint8, code ...uint8) Match {
	ofKind, ofCode := ICMPv4Type, ICMPv4Code
	if ethType, _ := m.value(EthType); ethType == etherIPv6 {
		ofKind, ofCode = ICMPv6Type, ICMPv6Code
	}
	m = m.with(ofKind, []byte{kind}, nil)
	if len(code) > 0 {
		m = m.with(ofCode, code[:1], nil)
	}
	return m
}

// The flags of a TCP segment that are looked at (RFC 9293, section 3.1).
const (
	TCPSYN uint16 = 0x02
	TCPRST uint16 = 0x04
	TCPACK uint16 = 0x10
)

// SYN matches the segments that ask for a connection: with SYN, without ACK. The
// match has TCP for its protocol.
func (m Match) SYN() Match { return m.with(TCPFlags, uint16Bytes(TCPSYN), uint16Bytes(TCPSYN|TCPACK)) }

// Opening matches the segments with SYN, also those with ACK. The match has TCP for its protocol.
func (m Match) Opening() Match { return m.with(TCPFlags, uint16Bytes(TCPSYN), uint16Bytes(TCPSYN)) }

// NoSYN matches the segments without SYN. The match has TCP for its protocol.
func (m Match) NoSYN() Match { return m.with(TCPFlags, uint16Bytes(0), uint16Bytes(TCPSYN)) }

// RST matches the segments with RST. The match has TCP for its protocol.
func (m Match) RST() Match { return m.with(TCPFlags, uint16Bytes(TCPRST), uint16Bytes(TCPRST)) }

// ConjID matches packets for which all dimensions of a conjunction matched.
func (m Match) ConjID(id uint32) Match { return m.with(ConjID, uint32Bytes(id), nil) }

// with returns a copy with one more term, in wire order. A field given twice
// keeps the later value.
func (m Match) with(f Field, value, mask []byte) Match {
	at, found := slices.BinarySearchFunc(m.terms, f, func(t term, f Field) int { return int(t.field) - int(f) })
	terms := make([]term, 0, len(m.terms)+1)
	terms = append(append(terms, m.terms[:at]...), newTerm(f, slices.Clone(value), mask))
	if found {
		at++
	}
	return Match{append(terms, m.terms[at:]...)}
}

// String returns the match in ovs-ofctl notation, the protocol first; it is
// empty if the match matches all.
func (m Match) String() string {
	var protocol, words []string
	for _, t := range m.terms {
		if t.field == EthType || t.field == IPProto {
			protocol = append(protocol, m.word(t)...)
		} else {
			words = append(words, m.word(t)...)
		}
	}
	return strings.Join(append(protocol, words...), ",")
}

// word renders one term; the Ethernet type and protocol have short words, and
// one for both where there is one.
func (m Match) word(t term) []string {
	switch t.field {
	case EthType:
		if w := m.protocolWord(); w != "" {
			return []string{w}
		}
		switch number(t.value) {
		case etherIPv4:
			return []string{"ip"}
		case etherARP:
			return []string{"arp"}
		case etherIPv6:
			return []string{"ipv6"}
		}
	case IPProto:
		if m.protocolWord() != "" {
			return nil
		}
	}
	return []string{t.field.spec().match + "=" + t.valueString()}
}

// protocolWord is ovs-ofctl's word for Ethernet type and protocol together,
// empty if there is none.
func (m Match) protocolWord() string {
	ethType, _ := m.value(EthType)
	proto, found := m.value(IPProto)
	if !found {
		return ""
	}
	v6 := ethType == etherIPv6
	if !v6 && ethType != etherIPv4 {
		return ""
	}
	switch p := model.Protocol(proto); {
	case p == model.ICMP && !v6:
		return "icmp"
	case p == model.ICMPv6 && v6:
		return "icmp6"
	case p == model.TCP && v6:
		return "tcp6"
	case p == model.UDP && v6:
		return "udp6"
	case p == model.SCTP && v6:
		return "sctp6"
	case p == model.TCP:
		return "tcp"
	case p == model.UDP:
		return "udp"
	case p == model.SCTP:
		return "sctp"
	}
	return ""
}

// value returns the value of a field of up to eight bytes, if it is matched.
func (m Match) value(f Field) (uint64, bool) {
	for _, t := range m.terms {
		if t.field == f {
			return number(t.value), true
		}
	}
	return 0, false
}

// wire appends the fields of the match.
func (m Match) wire(b []byte) ([]byte, error) {
	for _, t := range m.terms {
		var err error
		if b, err = t.wire(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}
