// Package answer builds the answers to rejected packets, for a switch that cannot: a reset to
// TCP, to all else the ICMP error "administratively prohibited".
//
// It does no I/O. It reads packets that nobody has checked. The tests compare with written packets;
// test/e2e (TestReject) has clients that get the answers.
package answer

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

const (
	headerIPv4 = 20
	headerIPv6 = 40
	headerTCP  = 20
	headerICMP = 8
	// quoted is what an ICMP error has at least of the transport's header (RFC 792).
	quoted = 8
	// hops is the TTL of answers.
	hops = 64
)

// Flags of TCP.
const (
	fin = 0x01
	syn = 0x02
	rst = 0x04
	ack = 0x10
)

// packet is a rejected packet, without what may follow it in its frame.
type packet struct {
	source, destination netip.Addr
	protocol            uint8
	// all begins with the IP header, transport behind it. Both may be cut.
	all, transport []byte
	// length is that of the transport's header and data, before the cut.
	length int
}

// To returns the IP packet that answers a rejected one, from its destination to its source.
// The rejected one begins with its IP header and may be cut. To returns nil for a packet that gets no
// answer: a reset, an ICMP error, a fragment, one from or to an address that is not one host's, or
// one that cannot be read.
func To(rejected []byte) []byte {
	p, ok := parse(rejected)
	if !ok || !p.source.IsGlobalUnicast() || !p.destination.IsGlobalUnicast() || len(p.transport) < quoted {
		return nil
	}
	switch p.protocol {
	case unix.IPPROTO_TCP:
		return p.reset()
	case unix.IPPROTO_ICMP:
		if !p.source.Is4() || isErrorICMP(p.transport[0]) {
			return nil
		}
	case unix.IPPROTO_ICMPV6:
		if p.source.Is4() || isErrorICMPv6(p.transport[0]) {
			return nil
		}
	}
	return p.prohibited()
}

// isErrorICMP reports whether an ICMP type is that of an error (RFC 1122, section 3.2.2), or not
// known.
func isErrorICMP(kind uint8) bool {
	const lastKnown = 18
	return kind > lastKnown || slices.Contains([]uint8{3, 4, 5, 11, 12}, kind)
}

// isErrorICMPv6 reports whether an ICMPv6 type is that of an error (RFC 4443) or a redirect.
func isErrorICMPv6(kind uint8) bool {
	const firstQuery, redirect = 128, 137
	return kind < firstQuery || kind == redirect
}

func parse(b []byte) (packet, bool) {
	if len(b) == 0 {
		return packet{}, false
	}
	switch b[0] >> 4 {
	case 4:
		return parseIPv4(b)
	case 6:
		return parseIPv6(b)
	}
	return packet{}, false
}

// parseIPv4 reads a header of RFC 791. A fragment is not read.
func parseIPv4(b []byte) (packet, bool) {
	if len(b) < headerIPv4 {
		return packet{}, false
	}
	header, total := int(b[0]&0x0f)*4, int(binary.BigEndian.Uint16(b[2:]))
	fragment := binary.BigEndian.Uint16(b[6:])&0x3fff != 0 // more to come, or an offset
	if header < headerIPv4 || total < header || len(b) < header || fragment {
		return packet{}, false
	}
	b = b[:min(len(b), total)]
	return packet{
		source: netip.AddrFrom4([4]byte(b[12:])), destination: netip.AddrFrom4([4]byte(b[16:])), protocol: b[9],
		all: b, transport: b[header:], length: total - header,
	}, true
}

// parseIPv6 reads a header of RFC 8200, and the extensions that any packet may have. One with
// another extension, as a fragment, is not read.
func parseIPv6(b []byte) (packet, bool) {
	if len(b) < headerIPv6 {
		return packet{}, false
	}
	p := packet{
		source: netip.AddrFrom16([16]byte(b[8:])), destination: netip.AddrFrom16([16]byte(b[24:])), protocol: b[6],
		length: int(binary.BigEndian.Uint16(b[4:])),
	}
	p.all = b[:min(len(b), headerIPv6+p.length)]
	p.transport = p.all[headerIPv6:]
	for slices.Contains([]uint8{unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS}, p.protocol) {
		if len(p.transport) < 2 {
			return packet{}, false
		}
		size := 8 + int(p.transport[1])*8
		if len(p.transport) < size {
			return packet{}, false
		}
		p.protocol, p.transport, p.length = p.transport[0], p.transport[size:], p.length-size
	}
	return p, p.protocol != unix.IPPROTO_FRAGMENT
}

// reset returns the reset to a TCP segment (RFC 9293, section 3.10.7.1).
func (p packet) reset() []byte {
	if len(p.transport) < headerTCP {
		return nil
	}
	flags, header := p.transport[13], int(p.transport[12]>>4)*4
	if flags&rst != 0 || header < headerTCP || header > p.length {
		return nil
	}
	b := make([]byte, headerTCP)
	copy(b, p.transport[2:4])
	copy(b[2:], p.transport[:2])
	b[12], b[13] = headerTCP/4<<4, rst
	if flags&ack != 0 {
		copy(b[4:], p.transport[8:12]) // it goes on where the segment says
	} else {
		length := uint32(p.length - header)
		for _, counted := range []byte{syn, fin} {
			if flags&counted != 0 {
				length++
			}
		}
		binary.BigEndian.PutUint32(b[8:], binary.BigEndian.Uint32(p.transport[4:])+length)
		b[13] |= ack
	}
	binary.BigEndian.PutUint16(b[16:], p.checksum(unix.IPPROTO_TCP, b))
	return p.back(unix.IPPROTO_TCP, b)
}

// prohibited returns the ICMP error with the beginning of the packet: type 3, code 13 (RFC 1812),
// or type 1, code 1 (RFC 4443).
func (p packet) prohibited() []byte {
	b := make([]byte, headerICMP, headerICMP+len(p.all))
	// An even number of bytes, for the checksum.
	b = append(b, p.all[:len(p.all)&^1]...)
	if p.source.Is4() {
		b[0], b[1] = 3, 13
		binary.BigEndian.PutUint16(b[2:], conntrack.Checksum(b, 0))
		return p.back(unix.IPPROTO_ICMP, b)
	}
	b[0], b[1] = 1, 1
	binary.BigEndian.PutUint16(b[2:], p.checksum(unix.IPPROTO_ICMPV6, b))
	return p.back(unix.IPPROTO_ICMPV6, b)
}

// checksum returns the checksum of an answer's transport with the pseudo header.
func (p packet) checksum(protocol uint8, transport []byte) uint16 {
	b := slices.Concat(p.destination.AsSlice(), p.source.AsSlice())
	b = binary.BigEndian.AppendUint32(b, uint32(len(transport)))
	b = binary.BigEndian.AppendUint32(b, uint32(protocol))
	return conntrack.Checksum(append(b, transport...), 0)
}

// back puts a header before an answer's transport.
func (p packet) back(protocol uint8, transport []byte) []byte {
	var b []byte
	if p.source.Is4() {
		b = binary.BigEndian.AppendUint16([]byte{0x45, 0}, uint16(headerIPv4+len(transport)))
		b = append(b, 0, 0, 0x40, 0, hops, protocol, 0, 0) // not to be fragmented
		b = append(append(b, p.destination.AsSlice()...), p.source.AsSlice()...)
		binary.BigEndian.PutUint16(b[10:], conntrack.Checksum(b, 0))
	} else {
		b = binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(transport)))
		b = append(b, protocol, hops)
		b = append(append(b, p.destination.AsSlice()...), p.source.AsSlice()...)
	}
	return append(b, transport...)
}
