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

// ICMPRange returns the type and the code that a range of ICMP or ICMPv6 matches; anyCode says
// that it matches all codes of the type. It is not ok if the range is none of one type.
func (r PortRange) ICMPRange() (kind, code uint8, anyCode, ok bool) {
	kind, code = ICMPTypeAndCode(r.First)
	_, last := ICMPTypeAndCode(r.Last)
	anyCode = code == 0 && last == 255
	ok = r.Protocol.IsICMP() && r.Last>>8 == r.First>>8 && (anyCode || code == last)
	return kind, code, anyCode, ok
}
