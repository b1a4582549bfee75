package tables

import (
	"net/netip"
	"strconv"

	"github.com/felixlike/felixlike/model"
)

// The matches of this file concern the origin of a packet, independently of its rewritten fields. Only
// nftables has them.

// MatchHopLimit matches the hop limit of IPv6.
type MatchHopLimit struct {
	Hops    uint8
	Negated bool
}

// MatchLocal matches when an address of the packet is one of this node's own.
type MatchLocal struct {
	Side    Side
	Negated bool
}

// MatchForwarded matches packets that came in by an interface. It is for the hook postrouting, where packets
// of this node itself pass as well.
type MatchForwarded struct{}

// MatchConnSource matches when the packet's connection was begun by an address
// of the prefix, as it was before it was rewritten.
type MatchConnSource struct{ Prefix netip.Prefix }

// MatchConnDNAT matches the packets of connections with a rewritten destination.
type MatchConnDNAT struct{}

// MatchLoop matches when source and destination of the packet are the same
// address of a set of the kind Loops.
type MatchLoop struct {
	Family model.Family
	Set    string
}

// MatchSender matches packets of Ethernet whose MAC address and source address are a member of a set of the
// kind Senders. It is for the hook prerouting.
type MatchSender struct {
	Family model.Family
	Set    string
}

// MatchEtherType matches the type of a frame behind its first VLAN tag, if it has one. It is for tables of the family bridge.
type MatchEtherType struct{ Type uint16 }

func (MatchHopLimit) isMatch()   {}
func (MatchEtherType) isMatch()  {}
func (MatchLocal) isMatch()      {}
func (MatchForwarded) isMatch()  {}
func (MatchConnSource) isMatch() {}
func (MatchConnDNAT) isMatch()   {}
func (MatchLoop) isMatch()       {}
func (MatchSender) isMatch()     {}

func (m MatchHopLimit) String() string   { return text(m) }
func (m MatchEtherType) String() string  { return text(m) }
func (m MatchLocal) String() string      { return text(m) }
func (m MatchForwarded) String() string  { return text(m) }
func (m MatchConnSource) String() string { return text(m) }
func (m MatchConnDNAT) String() string   { return text(m) }
func (m MatchLoop) String() string       { return text(m) }
func (m MatchSender) String() string     { return text(m) }

func (m MatchEtherType) appendTo(b []byte) []byte {
	return strconv.AppendUint(append(b, "ethertype 0x"...), uint64(m.Type), 16)
}

func (m MatchHopLimit) appendTo(b []byte) []byte {
	return strconv.AppendUint(append(append(b, "hops "...), not(m.Negated)...), uint64(m.Hops), 10)
}

func (m MatchLocal) appendTo(b []byte) []byte {
	b = append(append(b, m.Side.String()...), ' ')
	return append(append(b, not(m.Negated)...), "local"...)
}

func (MatchForwarded) appendTo(b []byte) []byte { return append(b, "forwarded"...) }

func (m MatchConnSource) appendTo(b []byte) []byte {
	b = append(b, "ct original src "...)
	if !m.Prefix.IsValid() {
		return append(b, m.Prefix.String()...)
	}
	return m.Prefix.AppendTo(b)
}

func (MatchConnDNAT) appendTo(b []byte) []byte { return append(b, "ct dnat"...) }

func (m MatchLoop) appendTo(b []byte) []byte {
	b = append(append(b, "ip"...), m.Family.String()...)
	return append(append(b, " src,dst @"...), m.Set...)
}

func (m MatchSender) appendTo(b []byte) []byte {
	b = append(append(b, "ip"...), m.Family.String()...)
	return append(append(b, " mac,src @"...), m.Set...)
}
