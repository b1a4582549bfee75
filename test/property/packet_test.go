package property

import (
	"encoding/binary"
	"net/netip"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/sctp"
	"github.com/felixlike/felixlike/model"
)

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	// etherLen is the length of a frame's header.
	etherLen = 14
)

// hopLimit is that of every packet; one less is left when it has been routed.
const hopLimit = 64

// flow is a connection that the source of a packet opens. Its id is the source
// port (or the echo's identifier). Every packet of it carries the id in its
// IP header, which identifies it on arrival.
type flow struct {
	oracle.Packet
	id uint16
}

// The flags of a TCP header in use here.
const (
	tcpSYN = 0x02
	tcpACK = 0x10
)

// Types of ICMP messages.
const (
	echoRequest = 8
	timestamp   = 13

	routerSolicitation = 10
)

// reply is the type of the message that answers a flow of ICMP. All but that of the echo are the request's
// and one.
func (f flow) reply() byte {
	kind, _ := model.ICMPTypeAndCode(f.Port)
	if f.Protocol == model.ICMP && kind == echoRequest {
		return 0
	}
	return kind + 1
}

// tags are the initiate tags, and with TCP the first sequence numbers, of the
// two ends.
func (f flow) tags() (source, destination uint32) {
	return 1<<16 | uint32(f.id), 2<<16 | uint32(f.id)
}

// opening is the first packet: a TCP SYN, a UDP datagram, an SCTP INIT or an
// echo request.
func (f flow) opening() []byte {
	s, _ := f.tags()
	return f.forth(segment{flags: tcpSYN, sequence: s}, sctp.Packet{Chunk: sctp.Init, InitiateTag: s})
}

// answer is the destination's answer to the opening.
func (f flow) answer() []byte {
	s, d := f.tags()
	return f.back(segment{flags: tcpSYN | tcpACK, sequence: d, acknowledged: s + 1},
		sctp.Packet{Chunk: sctp.InitAck, InitiateTag: d, VerificationTag: s})
}

// more is the source's next packet.
func (f flow) more() []byte {
	s, d := f.tags()
	return f.forth(segment{flags: tcpACK, sequence: s + 1, acknowledged: d + 1},
		sctp.Packet{Chunk: sctp.CookieEcho, VerificationTag: d})
}

func (f flow) forth(tcp segment, assoc sctp.Packet) []byte {
	kind, _ := model.ICMPTypeAndCode(f.Port)
	return f.packet(f.Source, f.Destination, f.id, f.Port, tcp, assoc, kind)
}

func (f flow) back(tcp segment, assoc sctp.Packet) []byte {
	return f.packet(f.Destination, f.Source, f.Port, f.id, tcp, assoc, f.reply())
}

// segment has the differences between TCP packets of a flow.
type segment struct {
	flags                  byte
	sequence, acknowledged uint32
}

func (f flow) packet(src, dst netip.Addr, sport, dport uint16, tcp segment, assoc sctp.Packet, icmp byte) []byte {
	_, code := model.ICMPTypeAndCode(f.Port)
	var l4 []byte
	switch f.Protocol {
	case model.TCP:
		l4 = make([]byte, 20)
		ports(l4, sport, dport)
		binary.BigEndian.PutUint32(l4[4:], tcp.sequence)
		binary.BigEndian.PutUint32(l4[8:], tcp.acknowledged)
		l4[12], l4[13] = 5<<4, tcp.flags // 20 byte header
		binary.BigEndian.PutUint16(l4[14:], 65535)
		binary.BigEndian.PutUint16(l4[16:], checksum(pseudo(src, dst, f.Protocol, l4), l4))
	case model.UDP:
		l4 = make([]byte, 12)
		ports(l4, sport, dport)
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
		binary.BigEndian.PutUint16(l4[6:], checksum(pseudo(src, dst, f.Protocol, l4), l4))
	case model.SCTP:
		assoc.SourcePort, assoc.DestinationPort = sport, dport
		l4 = assoc.Marshal()
	case model.ICMP:
		l4 = []byte{icmp, code, 0, 0, byte(f.id >> 8), byte(f.id), 0, 0}
		if icmp == timestamp || icmp == timestamp+1 {
			l4 = append(l4, make([]byte, 12)...)
		}
		binary.BigEndian.PutUint16(l4[2:], checksum(l4))
	case model.ICMPv6:
		l4 = []byte{icmp, code, 0, 0, byte(f.id >> 8), byte(f.id), 0, 0}
		binary.BigEndian.PutUint16(l4[2:], checksum(pseudo(src, dst, f.Protocol, l4), l4))
	}
	return append(ipHeader(src, dst, f.Protocol, f.id, len(l4)), l4...)
}

func ports(l4 []byte, sport, dport uint16) {
	binary.BigEndian.PutUint16(l4[0:], sport)
	binary.BigEndian.PutUint16(l4[2:], dport)
}

// ipHeader carries the id in IPv4's identification or in IPv6's flow label.
func ipHeader(src, dst netip.Addr, protocol model.Protocol, id uint16, payload int) []byte {
	if src.Is4() {
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, hopLimit, byte(protocol)
		binary.BigEndian.PutUint16(h[2:], uint16(20+payload))
		binary.BigEndian.PutUint16(h[4:], id)
		copy(h[12:], src.AsSlice())
		copy(h[16:], dst.AsSlice())
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		return h
	}
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, byte(protocol), hopLimit
	binary.BigEndian.PutUint16(h[2:], id)
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

// identity returns the id of the packet behind the headers of a frame, if it has
// that many hops left, or 0 for other packets.
func identity(frame []byte, headers int, hops byte) uint16 {
	if len(frame) < headers {
		return 0
	}
	switch ip := frame[headers:]; {
	case len(ip) >= 20 && ip[0]>>4 == 4 && ip[8] == hops:
		return binary.BigEndian.Uint16(ip[4:])
	case len(ip) >= 40 && ip[0]>>4 == 6 && ip[7] == hops:
		return binary.BigEndian.Uint16(ip[2:])
	}
	return 0
}
