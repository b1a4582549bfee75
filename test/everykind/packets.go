package everykind

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// The protocols of IP with a form of their own here.
const (
	hopByHop = 0
	icmp     = 1
	tcp      = 6
	udp      = 17
	routing  = 43
	fragment = 44
	icmpv6   = 58
	noNext   = 59
	options  = 60
)

// Packet is one IP packet.
type Packet struct {
	Protocol byte
	// Type is that of ICMP of the packet's own family, -1 of others.
	Type     int
	HopLimit byte
	Bytes    []byte
}

// Kind names what the packet is, without the hop limit.
func (p Packet) Kind() string {
	if p.Type >= 0 {
		return fmt.Sprintf("ICMP type %d", p.Type)
	}
	return fmt.Sprintf("protocol %d", p.Protocol)
}

// String names the packet.
func (p Packet) String() string { return fmt.Sprintf("%s, hop limit %d", p.Kind(), p.HopLimit) }

// Packets returns packets of all protocols, and of all types of the family's ICMP, with each of the hop limits and the numbers from first on.
// TCP asks for a connection. UDP and TCP go to port 4242, and come from 40000.
func Packets(src, dst netip.Addr, first uint32, hopLimits ...byte) (all []Packet) {
	for _, hops := range hopLimits {
		for protocol := range 256 {
			if byte(protocol) == ownICMP(src) {
				for kind := range 256 {
					all = append(all, packet(src, dst, byte(protocol), kind, hops, first+uint32(len(all))))
				}
				continue
			}
			all = append(all, packet(src, dst, byte(protocol), -1, hops, first+uint32(len(all))))
		}
	}
	return all
}

func ownICMP(a netip.Addr) byte {
	if a.Is4() {
		return icmp
	}
	return icmpv6
}

func packet(src, dst netip.Addr, protocol byte, kind int, hops byte, number uint32) Packet {
	mark := Mark(number)
	ports := []byte{0x9c, 0x40, 4242 >> 8, 4242 & 0xff}
	var l4 []byte
	checksumAt := -1
	switch {
	case kind >= 0:
		l4, checksumAt = append([]byte{byte(kind), 0, 0, 0, 0, 1, 0, 1}, dst.AsSlice()...), 2
	case protocol == tcp:
		l4, checksumAt = append(ports, 0, 0, 0, 1, 0, 0, 0, 0, 5<<4, 2, 0xff, 0xff, 0, 0, 0, 0), 16
	case protocol == udp:
		l4, checksumAt = append(ports, 0, byte(8+len(mark)), 0, 0), 6
	case src.Is6() && protocol == fragment:
		l4 = []byte{noNext, 0, 0, 0, 0, 0, 0, 1}
	case src.Is6() && (protocol == hopByHop || protocol == options || protocol == routing):
		l4 = []byte{noNext, 0, 1, 4, 0, 0, 0, 0} // padding, or a routing header with no segment left
		if protocol == routing {
			l4[2], l4[3] = 4, 0
		}
	default:
		l4 = []byte{noNext, 0, 0, 0, 0, 0, 0, 0}
	}
	l4 = append(l4, mark...)
	if checksumAt >= 0 {
		var pseudo []byte
		if protocol != icmp {
			pseudo = binary.BigEndian.AppendUint32(append(src.AsSlice(), dst.AsSlice()...), uint32(len(l4)))
			pseudo = append(pseudo, 0, 0, 0, protocol)
		}
		binary.BigEndian.PutUint16(l4[checksumAt:], checksum(append(pseudo, l4...)))
	}
	return Packet{protocol, kind, hops, append(header(src, dst, protocol, hops, len(l4)), l4...)}
}

// header returns the header of IPv4 or IPv6.
func header(src, dst netip.Addr, protocol, hops byte, length int) []byte {
	if src.Is6() {
		h := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(length))
		return append(append(append(h, protocol, hops), src.AsSlice()...), dst.AsSlice()...)
	}
	h := binary.BigEndian.AppendUint16([]byte{0x45, 0}, uint16(20+length))
	h = append(append(append(h, 0, 0, 0, 0, hops, protocol, 0, 0), src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return h
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	if len(b)%2 == 1 {
		b = append(b, 0)
	}
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// Source returns the source address of the packet in a frame without VLAN tags.
func Source(frame []byte) netip.Addr {
	from, to := 26, 30
	if len(frame) > 13 && binary.BigEndian.Uint16(frame[12:]) == IPv6 {
		from, to = 22, 38
	}
	if len(frame) < to {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(frame[from:to])
	return a
}
