package model

import (
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/internal/printable"
)

// Action is the effect of a rule on a packet that it matches.
type Action uint8

const (
	// Allow lets the packet through: no later rule of this direction is evaluated.
	Allow Action = iota + 1
	// Deny drops the packet.
	Deny
	// Pass hands the packet to the next tier.
	Pass
	// Reject is Deny with an answer to the sender: a TCP reset, or the ICMP error
	// "administratively prohibited". Only the answer differs.
	Reject
	// Next hands the packet to the next policy of the tier: no later rule of this policy is evaluated.
	Next
)

// Denies reports whether the action keeps the packet from its destination.
func (a Action) Denies() bool { return a == Deny || a == Reject }

// String returns the action's name.
func (a Action) String() string {
	switch a {
	case Allow:
		return "allow"
	case Deny:
		return "deny"
	case Pass:
		return "pass"
	case Reject:
		return "reject"
	case Next:
		return "next"
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// Direction is the direction of traffic at an endpoint.
type Direction uint8

const (
	// Ingress is traffic to the endpoint; the peer is the source.
	Ingress Direction = iota + 1
	// Egress is traffic from the endpoint; the peer is the destination.
	Egress
)

// Directions lists both directions in rendering order.
func Directions() []Direction { return []Direction{Ingress, Egress} }

// String returns "ingress" or "egress".
func (d Direction) String() string {
	switch d {
	case Ingress:
		return "ingress"
	case Egress:
		return "egress"
	}
	return fmt.Sprintf("direction(%d)", uint8(d))
}

// Rule matches a packet when its peer dimension and its port dimension both
// match.
//
// Peers: AnyPeer matches every address; otherwise the peer's address must be
// in one of the Peers (groups of kind Addresses or Networks).
//
// Ports: AnyPort matches every protocol, ICMP included; otherwise protocol
// and destination port (of ICMP type and code, see PortRange) must be in one of
// the Ports, or destination address, protocol and port in one of the NamedPorts
// (groups of kind AddressPorts).
//
// A dimension that is neither "any" nor has members matches nothing.
type Rule struct {
	// Name is the place of the rule in its object, as in "ingress[0]". It identifies the rule.
	Name string `json:"name"`
	// Title is the name that the author gave the rule, as RuleTitle returns it. Only people read it.
	Title      string      `json:"title,omitempty"`
	Action     Action      `json:"action"`
	AnyPeer    bool        `json:"anyPeer,omitempty"`
	Peers      []GroupID   `json:"peers,omitempty"`
	AnyPort    bool        `json:"anyPort,omitempty"`
	Ports      []PortRange `json:"ports,omitempty"`
	NamedPorts []GroupID   `json:"namedPorts,omitempty"`
	// Log reports the first packet of each connection that the rule decides. LogLabel comes
	// with the report. Neither changes a verdict.
	Log      bool   `json:"log,omitempty"`
	LogLabel string `json:"logLabel,omitempty"`
}

// maxTitle bounds a title in bytes.
const maxTitle = 100

// RuleTitle returns the name that an author gave a rule, as a terminal can show it: printable and
// on one line.
func RuleTitle(name string) string {
	title := printable.String(name)
	if len(title) > maxTitle {
		title = strings.ToValidUTF8(title[:maxTitle-3], "") + "..."
	}
	return title
}

// TitledRule returns the name of a rule with its title, as in "ingress[0] (no-metadata)".
func TitledRule(name, title string) string {
	if title == "" {
		return name
	}
	return name + " (" + title + ")"
}

// PortRange is an inclusive range of destination ports of one protocol.
// First 0 and Last 65535 stand for the whole protocol.
//
// ICMP and ICMPv6 have no ports. In their place stands the type of the message times 256, plus
// its code (ICMPMessage). A range of them is the whole protocol, or all codes of one type, or
// one code of one type (ICMPRange).
type PortRange struct {
	Protocol Protocol `json:"protocol"`
	First    uint16   `json:"first"`
	Last     uint16   `json:"last"`
}

// AllPorts reports whether the range covers its whole protocol.
func (r PortRange) AllPorts() bool { return r.First == 0 && r.Last == 65535 }

// String returns "tcp", "tcp/80", "tcp/80-90", or of ICMP "icmp type 8", "icmp type 8 code 0".
func (r PortRange) String() string {
	if kind, code, anyCode, ok := r.ICMPRange(); ok {
		if anyCode {
			return fmt.Sprintf("%s type %d", r.Protocol, kind)
		}
		return fmt.Sprintf("%s type %d code %d", r.Protocol, kind, code)
	}
	switch {
	case r.AllPorts():
		return r.Protocol.String()
	case r.First == r.Last:
		return fmt.Sprintf("%s/%d", r.Protocol, r.First)
	}
	return fmt.Sprintf("%s/%d-%d", r.Protocol, r.First, r.Last)
}

// ICMPRange returns the type and the code that a range of ICMP or ICMPv6 matches. If the range
// matches all codes of the type, anyCode is set. If it spans several types, ok is false.
func (r PortRange) ICMPRange() (kind, code uint8, anyCode, ok bool) {
	kind, code = ICMPTypeAndCode(r.First)
	_, last := ICMPTypeAndCode(r.Last)
	anyCode = code == 0 && last == 255
	ok = r.Protocol.IsICMP() && r.Last>>8 == r.First>>8 && (anyCode || code == last)
	return kind, code, anyCode, ok
}
