package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// Packet is the packet to follow: one of a connection, after the address of a
// Service has been translated. Port is the destination port, of ICMP the model.ICMPMessage: without
// one it is the echo request.
type Packet struct {
	Source      netip.Addr     `json:"source"`
	Destination netip.Addr     `json:"destination"`
	Protocol    model.Protocol `json:"protocol"`
	SourcePort  uint16         `json:"sourcePort,omitempty"`
	Port        uint16         `json:"port,omitempty"`
	Conn        Conn           `json:"connection"`
}

// MarshalJSON writes the message of ICMP as its type and code.
func (p Packet) MarshalJSON() ([]byte, error) {
	type fields Packet
	type message struct {
		Type uint8 `json:"type"`
		Code uint8 `json:"code"`
	}
	all := struct {
		fields
		ICMP *message `json:"icmp,omitempty"`
	}{fields: fields(p)}
	if p.Protocol.IsICMP() && p.Port != 0 {
		all.ICMP = &message{}
		all.ICMP.Type, all.ICMP.Code = model.ICMPTypeAndCode(p.Port)
		all.Port = 0
	}
	return json.Marshal(all)
}

// DefaultSourcePort is that of packets which name none.
const DefaultSourcePort = 40000

// String returns the packet as "tcp 10.0.0.1 -> 10.0.0.2:80".
func (p Packet) String() string {
	if p.Protocol.IsICMP() && p.Port != 0 {
		return fmt.Sprintf("%s %s -> %s", model.PortRange{Protocol: p.Protocol, First: p.Port, Last: p.Port}, p.Source, p.Destination)
	}
	if p.Port == 0 {
		return fmt.Sprintf("%s %s -> %s", p.Protocol, p.Source, p.Destination)
	}
	return fmt.Sprintf("%s %s -> %s", p.Protocol, p.Source, netip.AddrPortFrom(p.Destination, p.Port))
}

// Family is the address family of the packet.
func (p Packet) Family() model.Family { return model.FamilyOf(p.Destination) }

// Conn is the conntrack state of the packet's connection when the packet comes.
type Conn string

// The states of a connection.
const (
	// New: nothing is known of it, the packet is its first.
	New Conn = "new"
	// Allowed: established, and policy has let it through.
	Allowed Conn = "allowed"
	// Answer: as Allowed, but the packet is one of the side that did not begin it.
	Answer Conn = "answer"
	// Reopened: the packet asks for a TCP connection, from the ports of one that
	// policy has let through and that connection tracking remembers.
	Reopened Conn = "reopened"
	// Unjudged: established while there was no policy.
	Unjudged Conn = "unjudged"
	// Related: an ICMP error about a connection that policy has let through.
	Related Conn = "related"
	// Invalid: it fits no connection.
	Invalid Conn = "invalid"
)

// Conns lists the states.
func Conns() []Conn { return []Conn{New, Allowed, Answer, Reopened, Unjudged, Related, Invalid} }

// ParseConn returns the state of that name.
func ParseConn(text string) (Conn, error) {
	for _, c := range Conns() {
		if string(c) == text {
			return c, nil
		}
	}
	return "", fmt.Errorf("connection state %q: must be one of %v", text, Conns())
}

// check completes the packet, or returns an error if it is not valid.
func (p Packet) check() (Packet, error) {
	p.Source, p.Destination = p.Source.Unmap(), p.Destination.Unmap()
	switch {
	case !p.Source.IsValid() || !p.Destination.IsValid():
		return p, fmt.Errorf("packet %s: needs two addresses", p)
	case model.FamilyOf(p.Source) != model.FamilyOf(p.Destination):
		return p, fmt.Errorf("packet %s: the addresses are of two families", p)
	}
	if p.Conn == "" {
		p.Conn = New
	}
	switch p.Protocol {
	case model.TCP, model.UDP, model.SCTP:
		if p.SourcePort == 0 {
			p.SourcePort = DefaultSourcePort
		}
	case model.ICMP, model.ICMPv6:
		protocol, echo := model.EchoRequest(p.Family())
		p.Protocol, p.Port, p.SourcePort = protocol, cmp.Or(p.Port, echo), 0
	default:
		return p, fmt.Errorf("packet %s: only tcp, udp, sctp and icmp are traced", p)
	}
	if p.Conn == Reopened && p.Protocol != model.TCP {
		return p, fmt.Errorf("packet %s: only tcp asks for a connection that is %s", p, Reopened)
	}
	_, err := ParseConn(string(p.Conn))
	return p, err
}

// transport is the protocol in the packet's IP header: an error is about a connection
// of another.
func (p Packet) transport() model.Protocol {
	switch {
	case p.Conn != Related:
		return p.Protocol
	case p.Family() == model.IPv6:
		return model.ICMPv6
	}
	return model.ICMP
}

// asks reports whether the packet is a segment that asks for a TCP connection.
func (p Packet) asks() bool {
	return p.Protocol == model.TCP && (p.Conn == New || p.Conn == Reopened)
}
