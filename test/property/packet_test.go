package property

import (
	"encoding/binary"
	"net/netip"

	"github.com/felixlike/felixlike/lab/sctp"
	"github.com/felixlike/felixlike/model"
)

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
)

// packet returns the IP packet that opens a connection: a TCP SYN, a UDP
// datagram, an SCTP INIT or an ICMP echo request. The source port (or the
// echo's identifier) tells packets apart when they come back.
func packet(src, dst netip.Addr, protocol model.Protocol, sport, dport uint16) []byte {
	var l4 []byte
	switch protocol {
	case model.TCP:
		l4 = make([]byte, 20)
		binary.BigEndian.PutUint32(l4[4:], uint32(sport)<<16)
		l4[12], l4[13] = 5<<4, 0x02 // 20 byte header, SYN
		binary.BigEndian.PutUint16(l4[14:], 65535)
		ports(l4, sport, dport)
		binary.BigEndian.PutUint16(l4[16:], checksum(pseudo(src, dst, protocol, l4), l4))
	case model.UDP:
		l4 = make([]byte, 12)
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
		ports(l4, sport, dport)
		binary.BigEndian.PutUint16(l4[6:], checksum(pseudo(src, dst, protocol, l4), l4))
	case model.SCTP:
		l4 = sctp.Packet{SourcePort: sport, DestinationPort: dport, Chunk: sctp.Init, InitiateTag: uint32(sport) | 1<<16}.Marshal()
	case model.ICMP:
		l4 = make([]byte, 8)
		l4[0] = 8
		binary.BigEndian.PutUint16(l4[4:], sport)
		binary.BigEndian.PutUint16(l4[2:], checksum(l4))
	case model.ICMPv6:
		l4 = make([]byte, 8)
		l4[0] = 128
		binary.BigEndian.PutUint16(l4[4:], sport)
		binary.BigEndian.PutUint16(l4[2:], checksum(pseudo(src, dst, protocol, l4), l4))
	}
	return append(ipHeader(src, dst, protocol, len(l4)), l4...)
}

func ports(l4 []byte, sport, dport uint16) {
	binary.BigEndian.PutUint16(l4[0:], sport)
	binary.BigEndian.PutUint16(l4[2:], dport)
}

func ipHeader(src, dst netip.Addr, protocol model.Protocol, payload int) []byte {
	if src.Is4() {
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, 64, byte(protocol)
		binary.BigEndian.PutUint16(h[2:], uint16(20+payload))
		copy(h[12:], src.AsSlice())
		copy(h[16:], dst.AsSlice())
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		return h
	}
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, byte(protocol), 64
	binary.BigEndian.PutUint16(h[4:], uint16(payload))
	copy(h[8:], src.AsSlice())
	copy(h[24:], dst.AsSlice())
	return h
}

// pseudo is the pseudo header that transport checksums cover (RFC 9293
// section 3.1, RFC 8200 section 8.1).
func pseudo(src, dst netip.Addr, protocol model.Protocol, l4 []byte) []byte {
	b := append(src.AsSlice(), dst.AsSlice()...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(l4)))
	return binary.BigEndian.AppendUint32(b, uint32(protocol))
}

// checksum is the Internet checksum (RFC 1071) over all parts, each of even
// length.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, p := range parts {
		for i := 0; i+1 < len(p); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(p[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// identity returns what packet was given for sport, or 0 for other packets.
func identity(ip []byte) uint16 {
	if len(ip) < 20 {
		return 0
	}
	protocol, l4 := model.Protocol(0), []byte(nil)
	switch ip[0] >> 4 {
	case 4:
		protocol, l4 = model.Protocol(ip[9]), ip[20:]
	case 6:
		if len(ip) < 40 {
			return 0
		}
		protocol, l4 = model.Protocol(ip[6]), ip[40:]
	}
	if len(l4) < 8 {
		return 0
	}
	switch protocol {
	case model.TCP, model.UDP, model.SCTP:
		return binary.BigEndian.Uint16(l4)
	case model.ICMP, model.ICMPv6:
		if l4[0] == 8 || l4[0] == 128 {
			return binary.BigEndian.Uint16(l4[4:])
		}
	}
	return 0
}
