package conntrack

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// The flags of a TCP segment that Frame writes.
const (
	FlagSYN uint8 = 0x02
	FlagACK uint8 = 0x10
)

const ethernetHeader = 14

// Frame returns an Ethernet frame of a connection's direction, with right checksums and without data, for a
// switch to learn the connection from. No port has its Ethernet addresses. The flags are those of TCP.
func Frame(t Tuple, flags uint8) []byte {
	b := make([]byte, ethernetHeader, 96)
	copy(b, []byte{0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1})
	segment := transport(t, flags)
	if t.Src.Is4() {
		binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IP)
		at := len(b)
		b = append(b, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(20+len(segment)))
		b = append(b, 0, 0, 0, 0, hops, t.Protocol, 0, 0)
		b = append(append(b, t.Src.AsSlice()...), t.Dst.AsSlice()...)
		binary.BigEndian.PutUint16(b[at+10:], Checksum(b[at:], 0))
	} else {
		binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IPV6)
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(len(segment)))
		b = append(b, t.Protocol, hops)
		b = append(append(b, t.Src.AsSlice()...), t.Dst.AsSlice()...)
	}
	return append(b, segment...)
}

// hops is the TTL of frames; no frame leaves the switch.
const hops = 64

// transport returns the header behind that of IP.
func transport(t Tuple, flags uint8) []byte {
	var b []byte
	sum := 0 // where the checksum is
	switch t.Protocol {
	case unix.IPPROTO_TCP:
		b, sum = make([]byte, 20), 16
		b[12], b[13] = 5<<4, flags
		binary.BigEndian.PutUint16(b[14:], 0xffff) // the window
	case unix.IPPROTO_UDP:
		b, sum = make([]byte, 8), 6
		b[5] = 8 // the length
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		b, sum = make([]byte, 8), 2
		b[0], b[1] = t.ICMPType, t.ICMPCode
		binary.BigEndian.PutUint16(b[4:], t.ICMPID)
	}
	if b == nil {
		return nil
	}
	if !t.IsICMP() {
		binary.BigEndian.PutUint16(b, t.SrcPort)
		binary.BigEndian.PutUint16(b[2:], t.DstPort)
	}
	pseudo := uint32(0)
	if t.Protocol != unix.IPPROTO_ICMP {
		pseudo = uint32(t.Protocol) + uint32(len(b)) + add(t.Src.AsSlice()) + add(t.Dst.AsSlice())
	}
	binary.BigEndian.PutUint16(b[sum:], Checksum(b, pseudo))
	return b
}

// Checksum returns the Internet checksum of b, which has an even length, beginning with sum.
func Checksum(b []byte, sum uint32) uint16 {
	sum += add(b)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if sum == 0xffff {
		return 0xffff // zero means "none" to UDP
	}
	return ^uint16(sum)
}

func add(b []byte) (sum uint32) {
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return sum
}
