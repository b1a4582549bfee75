package tables

import (
	"fmt"
	"net/netip"
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
}

// Side tells which end of a packet a match looks at.
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

// MatchProtocol matches the transport protocol.
type MatchProtocol struct{ Protocol model.Protocol }

// MatchDestinationPorts matches the destination port against an inclusive
// range. It needs a MatchProtocol of TCP, UDP or SCTP before it.
type MatchDestinationPorts struct{ First, Last uint16 }

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
)

// MatchConnState matches when the packet's conntrack state is one of States.
type MatchConnState struct{ States ConnState }

// MatchMark matches when the packet mark has Value in the bits of Mask.
type MatchMark struct {
	Value, Mask uint32
	Negated     bool
}

func (MatchProtocol) isMatch()         {}
func (MatchDestinationPorts) isMatch() {}
func (MatchSet) isMatch()              {}
func (MatchPortSet) isMatch()          {}
func (MatchPrefix) isMatch()           {}
func (MatchInterface) isMatch()        {}
func (MatchConnState) isMatch()        {}
func (MatchMark) isMatch()             {}

func (m MatchProtocol) String() string { return "proto " + m.Protocol.String() }

func (m MatchDestinationPorts) String() string {
	if m.First == m.Last {
		return fmt.Sprintf("dport %d", m.First)
	}
	return fmt.Sprintf("dport %d-%d", m.First, m.Last)
}

func (m MatchSet) String() string {
	return fmt.Sprintf("ip%s %s @%s", m.Family, m.Side, m.Set)
}

func (m MatchPortSet) String() string {
	return fmt.Sprintf("ip%s dst,proto,dport @%s", m.Family, m.Set)
}

func (m MatchPrefix) String() string {
	return fmt.Sprintf("%s %s%s", m.Side, not(m.Negated), m.Prefix)
}

func (m MatchInterface) String() string {
	name := "iif"
	if m.Side == Destination {
		name = "oif"
	}
	return fmt.Sprintf("%s %s%s", name, not(m.Negated), m.Name)
}

func (m MatchConnState) String() string { return "ct " + m.States.String() }

func (m MatchMark) String() string {
	return fmt.Sprintf("mark %s%#x/%#x", not(m.Negated), m.Value, m.Mask)
}

// String returns the states joined by commas, in the order of their values.
func (s ConnState) String() string {
	var names []string
	for i, n := range []string{"new", "established", "related", "invalid"} {
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
