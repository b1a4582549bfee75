package tables

import (
	"fmt"
	"iter"
	"net/netip"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// Match is one condition of a rule. A rule matches when all its matches do.
// The set of matches is closed: a driver that meets one it cannot encode
// refuses the chain.
type Match interface {
	isMatch()
	// String renders the match canonically; it is part of the rule's hash.
	String() string
	part
}

// part is a match or an action as a part of a rule's text.
type part interface {
	// appendTo appends the text of String without allocations: a node hashes tens of thousands of rules when
	// it starts.
	appendTo(b []byte) []byte
}

func text(p part) string { return string(p.appendTo(nil)) }

// Side is the end of a packet that a match looks at.
type Side uint8

// The two ends of a packet.
const (
	Source Side = iota + 1
	Destination
)

// String returns "src" or "dst".
func (s Side) String() string {
	switch s {
	case Source:
		return "src"
	case Destination:
		return "dst"
	}
	return fmt.Sprintf("side(%d)", uint8(s))
}

// MatchProtocol matches the transport protocol. ICMP is one of IPv4 and ICMPv6 one of IPv6: unless the match
// is negated, it binds the rule to the family.
type MatchProtocol struct {
	Protocol model.Protocol
	Negated  bool
}

// MatchSYN matches the segments that ask for a connection: of FIN, SYN, RST and ACK
// they have SYN alone (RFC 9293, section 3.5; --syn of iptables-extensions(8)). It
// needs a MatchProtocol of TCP before it, also when it is negated.
type MatchSYN struct{ Negated bool }

// MatchReset matches the segments with RST. It needs a MatchProtocol of TCP before it. Only the nftables driver has it.
type MatchReset struct{}

// MatchDestinationPorts matches the destination port against an inclusive
// range. It needs a MatchProtocol of TCP, UDP or SCTP before it.
type MatchDestinationPorts struct{ First, Last uint16 }

// MatchICMP matches the messages of ICMP or ICMPv6 of one type, and of one code or of any. It needs a
// MatchProtocol of ICMP or ICMPv6 before it. Type 255 of ICMP is none: iptables takes it for any type.
type MatchICMP struct {
	Type, Code uint8
	AnyCode    bool
}

// MatchSet matches an address of the packet against a set (see ipsets) of the
// kind Addresses or Networks, in the given family.
type MatchSet struct {
	Family model.Family
	Side   Side
	Set    string
}

// MatchPortSet matches (destination address, protocol, destination port)
// against a set of the kind AddressPorts.
type MatchPortSet struct {
	Family model.Family
	Set    string
}

// SetOf returns the name of the set that a match looks up, or "". A MatchGrant also looks up maps (SetsOf).
func SetOf(m Match) string {
	switch m := m.(type) {
	case MatchSet:
		return m.Set
	case MatchPortSet:
		return m.Set
	case MatchLoop:
		return m.Set
	case MatchSender:
		return m.Set
	case MatchGrant:
		return m.Grants
	}
	return ""
}

// SetsOf yields the names of all sets and maps that a match looks up.
func SetsOf(m Match) iter.Seq[string] {
	return func(yield func(string) bool) {
		if set := SetOf(m); set == "" || !yield(set) {
			return
		}
		if m, ok := m.(MatchGrant); ok && yield(m.Lists) && m.Peers != "" {
			yield(m.Peers)
		}
	}
}

// MatchPrefix matches an address of the packet against one prefix; the
// prefix gives the family.
type MatchPrefix struct {
	Side    Side
	Prefix  netip.Prefix
	Negated bool
}

// MatchInterface matches the name of the incoming (Source) or outgoing
// (Destination) interface. A name that ends in '*' stands for all that begin
// with the rest.
type MatchInterface struct {
	Side    Side
	Name    string
	Negated bool
}

// ConnState is a set of conntrack states.
type ConnState uint8

// Conntrack states, as in nft's "ct state".
const (
	StateNew ConnState = 1 << iota
	StateEstablished
	StateRelated
	StateInvalid
	// StateUntracked is that of packets without a connection, as of neighbour discovery.
	StateUntracked
)

// MatchConnState matches when the packet's conntrack state is one of States.
type MatchConnState struct{ States ConnState }

// MatchConnOriginal matches the packets of the connection's originator, and not the replies. It does not
// match a packet without a connection.
type MatchConnOriginal struct{}

// MatchConnTranslated matches the packets of connections whose source or destination is rewritten. The kernel decides that
// with the first packet of a connection, at the latest in the hook postrouting, and does not change it.
type MatchConnTranslated struct{}

// MatchMark matches when the packet mark has Value in the bits of Mask.
type MatchMark struct {
	Value, Mask uint32
	Negated     bool
}

// MatchConnMark matches when the mark of the packet's connection has Value in
// the bits of Mask. A packet without a connection has none.
type MatchConnMark struct{ Value, Mask uint32 }

func (MatchProtocol) isMatch()         {}
func (MatchSYN) isMatch()              {}
func (MatchReset) isMatch()            {}
func (MatchDestinationPorts) isMatch() {}
func (MatchICMP) isMatch()             {}
func (MatchSet) isMatch()              {}
func (MatchPortSet) isMatch()          {}
func (MatchPrefix) isMatch()           {}
func (MatchInterface) isMatch()        {}
func (MatchConnState) isMatch()        {}
func (MatchConnOriginal) isMatch()     {}
func (MatchConnTranslated) isMatch()   {}
func (MatchMark) isMatch()             {}
func (MatchConnMark) isMatch()         {}

func (m MatchProtocol) String() string         { return text(m) }
func (m MatchSYN) String() string              { return text(m) }
func (m MatchReset) String() string            { return text(m) }
func (m MatchDestinationPorts) String() string { return text(m) }
func (m MatchICMP) String() string             { return text(m) }
func (m MatchSet) String() string              { return text(m) }
func (m MatchPortSet) String() string          { return text(m) }
func (m MatchPrefix) String() string           { return text(m) }
func (m MatchInterface) String() string        { return text(m) }
func (m MatchConnState) String() string        { return text(m) }
func (m MatchConnOriginal) String() string     { return text(m) }
func (m MatchConnTranslated) String() string   { return text(m) }
func (m MatchMark) String() string             { return text(m) }
func (m MatchConnMark) String() string         { return text(m) }

func (m MatchProtocol) appendTo(b []byte) []byte {
	b = append(append(b, "proto "...), not(m.Negated)...)
	return append(b, m.Protocol.String()...)
}

func (m MatchSYN) appendTo(b []byte) []byte {
	return append(append(append(b, "tcp "...), not(m.Negated)...), "syn"...)
}

func (MatchReset) appendTo(b []byte) []byte { return append(b, "tcp rst"...) }

func (m MatchDestinationPorts) appendTo(b []byte) []byte {
	b = strconv.AppendUint(append(b, "dport "...), uint64(m.First), 10)
	if m.First != m.Last {
		b = strconv.AppendUint(append(b, '-'), uint64(m.Last), 10)
	}
	return b
}

func (m MatchICMP) appendTo(b []byte) []byte {
	b = strconv.AppendUint(append(b, "icmp type "...), uint64(m.Type), 10)
	if !m.AnyCode {
		b = strconv.AppendUint(append(b, " code "...), uint64(m.Code), 10)
	}
	return b
}

func (m MatchSet) appendTo(b []byte) []byte {
	b = append(append(b, "ip"...), m.Family.String()...)
	b = append(append(b, ' '), m.Side.String()...)
	return append(append(b, " @"...), m.Set...)
}

func (m MatchPortSet) appendTo(b []byte) []byte {
	b = append(append(b, "ip"...), m.Family.String()...)
	return append(append(b, " dst,proto,dport @"...), m.Set...)
}

func (m MatchPrefix) appendTo(b []byte) []byte {
	b = append(append(b, m.Side.String()...), ' ')
	b = append(b, not(m.Negated)...)
	if !m.Prefix.IsValid() {
		return append(b, m.Prefix.String()...)
	}
	return m.Prefix.AppendTo(b)
}

func (m MatchInterface) appendTo(b []byte) []byte {
	name := "iif "
	if m.Side == Destination {
		name = "oif "
	}
	b = append(append(b, name...), not(m.Negated)...)
	return append(b, m.Name...)
}

func (m MatchConnState) appendTo(b []byte) []byte {
	return append(append(b, "ct "...), m.States.String()...)
}

func (MatchConnOriginal) appendTo(b []byte) []byte { return append(b, "ct original"...) }

func (MatchConnTranslated) appendTo(b []byte) []byte { return append(b, "ct translated"...) }

func (m MatchMark) appendTo(b []byte) []byte {
	b = append(append(b, "mark "...), not(m.Negated)...)
	return appendMasked(b, m.Value, m.Mask)
}

func (m MatchConnMark) appendTo(b []byte) []byte {
	return appendMasked(append(b, "ct mark "...), m.Value, m.Mask)
}

// appendMasked appends value/mask in hexadecimal digits.
func appendMasked(b []byte, value, mask uint32) []byte {
	b = strconv.AppendUint(append(b, "0x"...), uint64(value), 16)
	return strconv.AppendUint(append(b, "/0x"...), uint64(mask), 16)
}

// String returns the states joined by commas, in the order of their values.
func (s ConnState) String() string {
	var names []string
	for i, n := range []string{"new", "established", "related", "invalid", "untracked"} {
		if s&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ",")
}

func not(negated bool) string {
	if negated {
		return "!"
	}
	return ""
}
