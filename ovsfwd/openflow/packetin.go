package openflow

import (
	"encoding/binary"
	"net/netip"
)

// PacketIn is a packet that a flow has sent.
type PacketIn struct {
	// Table and Cookie are the flow's.
	Table  uint8
	Cookie uint64
	// match has the input port, the tunnel's addresses, and the registers that are not zero, in pairs.
	match []byte
	// Frame is the Ethernet frame, as far as it was sent.
	Frame []byte
}

// Register returns the value that a register had where the packet was sent.
func (p PacketIn) Register(number uint8) uint32 {
	pair := p.value(registerPairs, number/2, 8)
	if pair == nil {
		return 0
	}
	return binary.BigEndian.Uint32(pair[4*(number%2):])
}

// InPort returns the port that the packet came by, zero if it came by none.
func (p PacketIn) InPort() uint32 {
	s := InPort.spec()
	port := p.value(s.class, s.number, s.width)
	if port == nil {
		return 0
	}
	return binary.BigEndian.Uint32(port)
}

// TunnelSource returns the source of a tunnelled packet's outer header. It is not valid for another packet.
func (p PacketIn) TunnelSource() netip.Addr {
	for _, f := range []Field{TunSrc, TunIPv6Src} {
		s := f.spec()
		if source, ok := netip.AddrFromSlice(p.value(s.class, s.number, s.width)); ok {
			return source
		}
	}
	return netip.Addr{}
}

// value returns a field of the match, nil if the match does not have it.
func (p PacketIn) value(of class, number uint8, width int) []byte {
	for b := p.match; len(b) >= 4; {
		size := 4 + int(b[3])
		if size > len(b) {
			return nil
		}
		if class(binary.BigEndian.Uint16(b)) == of && b[2]>>1 == number && size >= 4+width {
			return b[4 : 4+width]
		}
		b = b[size:]
	}
	return nil
}
