package live

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/internal/sctp"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

const etherLen = 14

// frame makes the Ethernet frame that a pod would send: the first packet of a
// connection.
func frame(p trace.Packet, src, dst net.HardwareAddr) ([]byte, error) {
	t := conntrack.Tuple{Src: p.Source, Dst: p.Destination, Protocol: uint8(p.Protocol), SrcPort: p.SourcePort, DstPort: p.Port}
	switch p.Protocol {
	case model.TCP, model.UDP:
	case model.ICMP, model.ICMPv6:
		t.ICMPType, t.ICMPCode = message(p)
		t.ICMPID = p.SourcePort
	case model.SCTP:
		t.SrcPort, t.DstPort = 0, 0
	default:
		return nil, fmt.Errorf("no real packet of %s can be sent", p.Protocol)
	}
	b := conntrack.Frame(t, conntrack.FlagSYN)
	if p.Protocol == model.SCTP {
		b = withPayload(b, sctp.Packet{SourcePort: p.SourcePort, DestinationPort: p.Port, Chunk: sctp.Init, InitiateTag: 1}.Marshal())
	}
	copy(b, dst)
	copy(b[6:], src)
	return b, nil
}

// message returns the type and the code of an ICMP packet.
func message(p trace.Packet) (kind, code uint8) {
	_, echo := model.EchoRequest(p.Family())
	return model.ICMPTypeAndCode(cmp.Or(p.Port, echo))
}

// withPayload adds a payload behind the headers of a frame without one.
func withPayload(b, payload []byte) []byte {
	b = append(slices.Clone(b), payload...)
	ip := b[etherLen:]
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(payload)))
		return b
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(payload)))
	ip[10], ip[11] = 0, 0
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	return b
}

// isOurs reports whether a frame is the packet, with any Ethernet addresses.
func isOurs(b []byte, p trace.Packet) bool {
	if len(b) < etherLen+20 {
		return false
	}
	ip := b[etherLen:]
	var src, dst netip.Addr
	var proto uint8
	var l4 []byte
	switch binary.BigEndian.Uint16(b[12:]) {
	case unix.ETH_P_IP:
		head := 4 * int(ip[0]&0xf)
		if len(ip) < head+8 || head < 20 {
			return false
		}
		src, _ = netip.AddrFromSlice(ip[12:16])
		dst, _ = netip.AddrFromSlice(ip[16:20])
		proto, l4 = ip[9], ip[head:]
	case unix.ETH_P_IPV6:
		if len(ip) < 48 {
			return false
		}
		src, _ = netip.AddrFromSlice(ip[8:24])
		dst, _ = netip.AddrFromSlice(ip[24:40])
		proto, l4 = ip[6], ip[40:]
	default:
		return false
	}
	if src != p.Source || dst != p.Destination || proto != uint8(p.Protocol) {
		return false
	}
	if p.Protocol.IsICMP() {
		return binary.BigEndian.Uint16(l4[4:]) == p.SourcePort
	}
	return binary.BigEndian.Uint16(l4) == p.SourcePort && binary.BigEndian.Uint16(l4[2:]) == p.Port
}
