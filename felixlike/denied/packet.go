package denied

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// Packet has the header fields of a packet that a report shows.
type Packet struct {
	Source, Destination netip.Addr
	Protocol            model.Protocol
	// SourcePort and Port are those of TCP, UDP and SCTP; a fragment that is not the
	// first of its packet has none.
	SourcePort, Port uint16
	// Type and Code are those of ICMP and ICMPv6.
	Type, Code uint8
}

// Parse reads a packet from its IP header on. It may end anywhere behind that: then
// the packet has no ports.
func Parse(b []byte) (Packet, error) {
	if len(b) == 0 {
		return Packet{}, errors.New("an empty packet")
	}
	switch version := b[0] >> 4; version {
	case 4:
		return parseIPv4(b)
	case 6:
		return parseIPv6(b)
	default:
		return Packet{}, fmt.Errorf("a packet of IP version %d", version)
	}
}

// parseIPv4 reads a header of RFC 791.
func parseIPv4(b []byte) (Packet, error) {
	const shortest = 20
	header := int(b[0]&0x0f) * 4
	if header < shortest || len(b) < header {
		return Packet{}, fmt.Errorf("an IPv4 packet of %d bytes, with a header of %d", len(b), header)
	}
	p := Packet{
		Source: netip.AddrFrom4([4]byte(b[12:])), Destination: netip.AddrFrom4([4]byte(b[16:])), Protocol: model.Protocol(b[9]),
	}
	if binary.BigEndian.Uint16(b[6:])&0x1fff == 0 { // the offset of a fragment
		p.transport(b[header:])
	}
	return p, nil
}

// Headers that may stand between an IPv6 header and that of the transport (RFC
// 8200, RFC 4302).
const (
	hopByHop       = 0
	routing        = 43
	fragment       = 44
	authentication = 51
	destination    = 60
)

// parseIPv6 reads a header of RFC 8200, and its extensions as far as they are there.
func parseIPv6(b []byte) (Packet, error) {
	const size = 40
	if len(b) < size {
		return Packet{}, fmt.Errorf("an IPv6 packet of %d bytes", len(b))
	}
	p := Packet{Source: netip.AddrFrom16([16]byte(b[8:])), Destination: netip.AddrFrom16([16]byte(b[24:]))}
	next, b := b[6], b[size:]
	for {
		length := 8
		switch next {
		case hopByHop, routing, destination:
			if len(b) >= 2 {
				length = 8 + int(b[1])*8
			}
		case authentication:
			if len(b) >= 2 {
				length = 8 + int(b[1])*4
			}
		case fragment:
			if len(b) >= 4 && binary.BigEndian.Uint16(b[2:])&0xfff8 != 0 {
				p.Protocol = model.Protocol(b[0])
				return p, nil
			}
		default:
			p.Protocol = model.Protocol(next)
			p.transport(b)
			return p, nil
		}
		if len(b) < length {
			p.Protocol = model.Protocol(next)
			return p, nil
		}
		next, b = b[0], b[length:]
	}
}

func (p *Packet) transport(b []byte) {
	if len(b) < 4 {
		return
	}
	switch p.Protocol {
	case model.TCP, model.UDP, model.SCTP:
		p.SourcePort, p.Port = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	case model.ICMP, model.ICMPv6:
		p.Type, p.Code = b[0], b[1]
	}
}

// etherTypes of the parsed protocols, and of tags before them.
const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
)

// Payload returns the payload of an Ethernet frame if that is IP.
func Payload(frame []byte) ([]byte, error) {
	const header = 14
	if len(frame) < header {
		return nil, fmt.Errorf("a frame of %d bytes", len(frame))
	}
	if kind := binary.BigEndian.Uint16(frame[12:]); kind != etherIPv4 && kind != etherIPv6 {
		return nil, fmt.Errorf("a frame of type %#04x", kind)
	}
	return frame[header:], nil
}
