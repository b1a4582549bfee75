package tables

import (
	"fmt"
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// Action is the effect of a rule on a packet that it matches. The set of actions is closed, as that of
// matches is.
type Action interface {
	isAction()
	// String renders the action canonically; it is part of the rule's hash.
	String() string
	part
}

// Accept ends the base chain with an accept verdict.
type Accept struct{}

// Drop drops the packet silently.
type Drop struct{}

// Return goes back to the calling chain.
type Return struct{}

// Jump continues in another chain and comes back when that chain returns.
type Jump struct{ Chain string }

// Goto continues in another chain; when it returns, the packet comes back to
// the caller of this chain.
type Goto struct{ Chain string }

// SetMark replaces the bits of Mask in the packet mark by Value.
type SetMark struct{ Value, Mask uint32 }

// SetMarkAndReturn is SetMark and Return in one rule. Drivers of iptables refuse it: an
// xtables target can do only one of the two.
type SetMarkAndReturn struct{ Value, Mask uint32 }

// SetConnMark replaces the bits of Mask in the mark of the packet's connection
// by Value; a packet without a connection is left alone.
type SetConnMark struct{ Value, Mask uint32 }

// NoTrack keeps the packet from connection tracking, and goes on; for base chains that run before it
// (nft: notrack). Drivers of iptables refuse it.
type NoTrack struct{}

// Masquerade rewrites the source to the address of the outgoing interface;
// for chains of the nat type only.
type Masquerade struct{}

// SourceNAT rewrites the source to an address; for chains of the nat type only,
// as are all that rewrite it.
type SourceNAT struct{ To netip.Addr }

// KeepSource binds the connection to the source that it has, so that nothing
// which comes after rewrites it.
type KeepSource struct{ Family model.Family }

// Number is the value of an entry in a map of numbers. It is no action of a rule.
type Number uint32

// Report sends the packet to the listener of a group of NFLOG, and goes on with the next rule. It reports
// PerSecond packets a second, with a burst of the same number; its counter counts the reported packets.
type Report struct {
	Group uint16
	// Prefix comes with the packet; Length bounds the packet's bytes.
	Prefix    string
	Length    uint32
	PerSecond uint32
}

// Reject drops the packet and answers its sender, at most PerSecond times a second, with a burst of the same
// number. Packets above this rate go on with the next rule. The kernel does not answer resets, ICMP errors,
// fragments, broadcast and multicast.
type Reject struct {
	With Answer
	// Family restricts the rule to a family; zero is both. Drivers of iptables need one for
	// AdminProhibited.
	Family    model.Family
	PerSecond uint32
}

// Answer is an answer to the sender of a rejected packet.
type Answer uint8

// The answers.
const (
	// TCPReset needs a MatchProtocol of TCP in its rule.
	TCPReset Answer = iota + 1
	// AdminProhibited is ICMP type 3, code 13, and ICMPv6 type 1, code 1.
	AdminProhibited
	// PortUnreachable is ICMP type 3, code 3, and ICMPv6 type 1, code 4.
	PortUnreachable
)

// String returns the name of the answer.
func (a Answer) String() string {
	switch a {
	case TCPReset:
		return "tcp reset"
	case AdminProhibited:
		return "icmp admin-prohibited"
	case PortUnreachable:
		return "icmp port-unreachable"
	}
	return fmt.Sprintf("answer(%d)", uint8(a))
}

// Dispatch looks an address of the packet up in a verdict map and carries out
// the verdict found; without one the packet goes on to the next rule. Drivers
// without verdict maps refuse it (their dispatch is a prefix tree of chains).
type Dispatch struct {
	Family model.Family
	Side   Side
	Map    string
}

func (Accept) isAction()           {}
func (Drop) isAction()             {}
func (Return) isAction()           {}
func (Jump) isAction()             {}
func (Goto) isAction()             {}
func (SetMark) isAction()          {}
func (SetMarkAndReturn) isAction() {}
func (SetConnMark) isAction()      {}
func (NoTrack) isAction()          {}
func (Masquerade) isAction()       {}
func (SourceNAT) isAction()        {}
func (KeepSource) isAction()       {}
func (Number) isAction()           {}
func (Report) isAction()           {}
func (Reject) isAction()           {}
func (Dispatch) isAction()         {}

func (a Accept) String() string           { return text(a) }
func (a Drop) String() string             { return text(a) }
func (a Return) String() string           { return text(a) }
func (a Jump) String() string             { return text(a) }
func (a Goto) String() string             { return text(a) }
func (a SetMark) String() string          { return text(a) }
func (a SetMarkAndReturn) String() string { return text(a) }
func (a SetConnMark) String() string      { return text(a) }
func (a NoTrack) String() string          { return text(a) }
func (a Masquerade) String() string       { return text(a) }
func (a SourceNAT) String() string        { return text(a) }
func (a KeepSource) String() string       { return text(a) }
func (a Number) String() string           { return text(a) }
func (a Report) String() string           { return text(a) }
func (a Reject) String() string           { return text(a) }
func (a Dispatch) String() string         { return text(a) }

func (Accept) appendTo(b []byte) []byte     { return append(b, "accept"...) }
func (Drop) appendTo(b []byte) []byte       { return append(b, "drop"...) }
func (Return) appendTo(b []byte) []byte     { return append(b, "return"...) }
func (a Jump) appendTo(b []byte) []byte     { return append(append(b, "jump "...), a.Chain...) }
func (a Goto) appendTo(b []byte) []byte     { return append(append(b, "goto "...), a.Chain...) }
func (NoTrack) appendTo(b []byte) []byte    { return append(b, "notrack"...) }
func (Masquerade) appendTo(b []byte) []byte { return append(b, "masquerade"...) }

func (a SourceNAT) appendTo(b []byte) []byte {
	b = append(b, "snat to "...)
	if !a.To.IsValid() {
		return append(b, "none"...)
	}
	return a.To.AppendTo(b)
}

func (a KeepSource) appendTo(b []byte) []byte {
	b = append(append(b, "ip"...), a.Family.String()...)
	return append(b, " keep src"...)
}

func (a Number) appendTo(b []byte) []byte { return fmt.Appendf(b, "0x%08x", uint32(a)) }

func (a SetMark) appendTo(b []byte) []byte {
	return appendMasked(append(b, "mark set "...), a.Value, a.Mask)
}

func (a SetMarkAndReturn) appendTo(b []byte) []byte {
	return append(SetMark(a).appendTo(b), " return"...)
}

func (a SetConnMark) appendTo(b []byte) []byte {
	return appendMasked(append(b, "ct mark set "...), a.Value, a.Mask)
}

func (a Report) appendTo(b []byte) []byte {
	return fmt.Appendf(b, "report %s to group %d, %d bytes, %d/second", a.Prefix, a.Group, a.Length, a.PerSecond)
}

func (a Reject) appendTo(b []byte) []byte {
	if a.Family != 0 {
		b = append(append(append(b, "ip"...), a.Family.String()...), ' ')
	}
	return fmt.Appendf(b, "reject with %s, %d/second", a.With, a.PerSecond)
}

func (a Dispatch) appendTo(b []byte) []byte {
	b = append(append(b, "ip"...), a.Family.String()...)
	b = append(append(b, ' '), a.Side.String()...)
	return append(append(b, " vmap @"...), a.Map...)
}
