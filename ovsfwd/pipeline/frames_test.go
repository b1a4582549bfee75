package pipeline

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
)

// Frames as a pod or an underlay host could write them. Inner checksums are
// left zero: the bridge does not look at them.

func ethernet(dst, src net.HardwareAddr, etherType uint16, payload []byte) []byte {
	return slices.Concat(dst, src, binary.BigEndian.AppendUint16(nil, etherType), payload)
}

func udp(src, dst uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, src)
	b = binary.BigEndian.AppendUint16(b, dst)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	return append(append(b, 0, 0), payload...)
}

// ip makes a packet of either family; the IPv4 header has its checksum, which
// the tunnel's end verifies.
func ip(src, dst netip.Addr, proto, ttl uint8, payload []byte) []byte {
	if src.Is6() {
		b := []byte{0x60, 0, 0, 0}
		b = binary.BigEndian.AppendUint16(b, uint16(len(payload)))
		return slices.Concat(b, []byte{proto, ttl}, src.AsSlice(), dst.AsSlice(), payload)
	}
	b := []byte{0x45, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(20+len(payload)))
	b = append(b, 0, 1, 0x40, 0, ttl, proto, 0, 0)
	b = slices.Concat(b, src.AsSlice(), dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], checksum(b))
	return append(b, payload...)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func ipFrame(dstMAC, srcMAC net.HardwareAddr, src, dst string) []byte {
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	etherType := uint16(0x0800)
	if s.Is6() {
		etherType = 0x86dd
	}
	return ethernet(dstMAC, srcMAC, etherType, ip(s, d, 17, 64, udp(4000, 4001, []byte("felixlike"))))
}

// redirectFrame makes a redirect of IPv4 (RFC 792).
func redirectFrame(srcMAC net.HardwareAddr, src, dst string) []byte {
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	quoted := ip(d, s, 17, 64, udp(4000, 4001, []byte("felixlike")))
	return ethernet(broadcast(), srcMAC, 0x0800, ip(s, d, 1, 64, slices.Concat([]byte{5, 1, 0, 0}, s.AsSlice(), quoted)))
}

func broadcast() net.HardwareAddr { return net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }

func arpFrame(op uint16, ethSrc, sha net.HardwareAddr, spa, tpa string) []byte {
	b := []byte{0, 1, 8, 0, 6, 4}
	b = binary.BigEndian.AppendUint16(b, op)
	b = slices.Concat(b, sha, netip.MustParseAddr(spa).AsSlice(), make([]byte, 6), netip.MustParseAddr(tpa).AsSlice())
	return ethernet(broadcast(), ethSrc, 0x0806, b)
}

// ndFrame makes a neighbour discovery message: type, target (none for router
// messages) and link-layer options of one kind (1 source, 2 target).
func ndFrame(icmpType uint8, ethSrc net.HardwareAddr, src, target string, optionKind byte, options ...net.HardwareAddr) []byte {
	b := []byte{icmpType, 0, 0, 0, 0, 0, 0, 0}
	if target == "" {
		b = append(b, make([]byte, 8)...)
	} else {
		b = append(b, netip.MustParseAddr(target).AsSlice()...)
	}
	for _, o := range options {
		b = append(append(b, optionKind, 1), o...)
	}
	packet := ip(netip.MustParseAddr(src), netip.MustParseAddr("ff02::1"), 58, 255, b)
	return ethernet(mustMAC("33:33:00:00:00:01"), ethSrc, 0x86dd, packet)
}

// geneve wraps a frame as the node at outerSrc would.
func geneve(dstMAC, srcMAC net.HardwareAddr, outerSrc, outerDst string, inner []byte) []byte {
	header := []byte{0, 0, 0x65, 0x58, 0, 0, 0, 0}
	datagram := udp(50000, 6081, append(header, inner...))
	return ethernet(dstMAC, srcMAC, 0x0800, ip(netip.MustParseAddr(outerSrc), netip.MustParseAddr(outerDst), 17, 64, datagram))
}
