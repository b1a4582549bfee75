package model

import (
	"fmt"
	"net/netip"
)

// Family is an IP address family.
type Family uint8

// The two address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families lists both families in the order in which everything is rendered.
func Families() []Family { return []Family{IPv4, IPv6} }

// FamilyOf returns the family of an address; an IPv4-mapped IPv6 address
// counts as IPv4.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// String returns "4" or "6".
func (f Family) String() string {
	switch f {
	case IPv4:
		return "4"
	case IPv6:
		return "6"
	}
	return fmt.Sprintf("family(%d)", uint8(f))
}

// Protocol is an IANA protocol number. Zero means any protocol.
type Protocol uint8

// The protocols a NetworkPolicy can name, ICMP for probes and traces, and GRE, which
// pods may not send to nodes.
const (
	AnyProtocol Protocol = 0
	ICMP        Protocol = 1
	TCP         Protocol = 6
	UDP         Protocol = 17
	GRE         Protocol = 47
	ICMPv6      Protocol = 58
	SCTP        Protocol = 132
)

// ParseProtocol parses a Kubernetes protocol name: TCP, UDP or SCTP
// (core/v1 Protocol; upper case). Anything else is an error.
func ParseProtocol(s string) (Protocol, error) {
	switch s {
	case "TCP":
		return TCP, nil
	case "UDP":
		return UDP, nil
	case "SCTP":
		return SCTP, nil
	}
	return 0, fmt.Errorf("unsupported protocol %q: must be TCP, UDP or SCTP", s)
}

// String returns the lower-case name that nft, iptables and ovs-ofctl use.
func (p Protocol) String() string {
	switch p {
	case AnyProtocol:
		return "any"
	case ICMP:
		return "icmp"
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case GRE:
		return "gre"
	case ICMPv6:
		return "icmpv6"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("proto(%d)", uint8(p))
}

// protocols lists the protocols that have text forms in JSON. GRE has none: traces do not
// support it.
func protocols() []Protocol { return []Protocol{AnyProtocol, ICMP, TCP, UDP, ICMPv6, SCTP} }

// MarshalText returns the name, so that JSON shows names and no numbers.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText takes the text that MarshalText returns for a protocol with a name.
func (p *Protocol) UnmarshalText(text []byte) error {
	for _, known := range protocols() {
		if known.String() == string(text) {
			*p = known
			return nil
		}
	}
	return fmt.Errorf("unknown protocol %q", text)
}
