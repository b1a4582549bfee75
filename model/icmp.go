package model

// ICMPMessage returns what a message of ICMP or ICMPv6 has in the place of a port.
func ICMPMessage(kind, code uint8) uint16 { return uint16(kind)<<8 | uint16(code) }

// ICMPTypeAndCode returns the type and the code of an ICMPMessage.
func ICMPTypeAndCode(message uint16) (kind, code uint8) { return uint8(message >> 8), uint8(message) }

// EchoRequest returns the protocol of ICMP in a family, and the ICMPMessage of its echo request.
func EchoRequest(f Family) (Protocol, uint16) {
	if f == IPv6 {
		return ICMPv6, ICMPMessage(128, 0)
	}
	return ICMP, ICMPMessage(8, 0)
}

// PacketTooBig returns the protocol of ICMP in a family, and the ICMPMessage by which a router says that a packet is too big for the next link (RFC 1191,
// RFC 4443).
func PacketTooBig(f Family) (Protocol, uint16) {
	if f == IPv6 {
		return ICMPv6, ICMPMessage(2, 0)
	}
	return ICMP, ICMPMessage(3, 4)
}

// IsICMP reports whether the protocol is ICMP or ICMPv6.
func (p Protocol) IsICMP() bool { return p == ICMP || p == ICMPv6 }

// ICMPFamily returns the family of which ICMP or ICMPv6 is a protocol, and zero for other protocols.
func (p Protocol) ICMPFamily() Family {
	switch p {
	case ICMP:
		return IPv4
	case ICMPv6:
		return IPv6
	}
	return 0
}
