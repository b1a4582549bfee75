package conntrack

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Tuple is one direction of a connection, as its packets are addressed.
type Tuple struct {
	Protocol uint8
	Src, Dst netip.Addr
	// SrcPort and DstPort are those of TCP, UDP and SCTP.
	SrcPort, DstPort uint16
	// ICMPID, ICMPType and ICMPCode are those of an ICMP or ICMPv6 query.
	ICMPID             uint16
	ICMPType, ICMPCode uint8
}

// Reverse returns the tuple of the answers when nothing translates addresses.
func (t Tuple) Reverse() Tuple {
	t.Src, t.Dst = t.Dst, t.Src
	t.SrcPort, t.DstPort = t.DstPort, t.SrcPort
	t.ICMPType = answer(t.Protocol, t.ICMPType)
	return t
}

// IsICMP reports whether the tuple is of ICMP or ICMPv6, so that it has an id
// and no ports.
func (t Tuple) IsICMP() bool {
	return t.Protocol == unix.IPPROTO_ICMP || t.Protocol == unix.IPPROTO_ICMPV6
}

// String is for messages.
func (t Tuple) String() string {
	if t.IsICMP() {
		return fmt.Sprintf("%s %s>%s type %d id %d", protocolName(t.Protocol), t.Src, t.Dst, t.ICMPType, t.ICMPID)
	}
	return fmt.Sprintf("%s %s>%s", protocolName(t.Protocol), netip.AddrPortFrom(t.Src, t.SrcPort), netip.AddrPortFrom(t.Dst, t.DstPort))
}

func protocolName(p uint8) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_ICMPV6:
		return "icmpv6"
	}
	return fmt.Sprintf("protocol %d", p)
}

// answer returns the ICMP type that answers a query, and the query that an
// answer is to. Types that are neither are returned as they are.
func answer(protocol, kind uint8) uint8 {
	switch {
	case protocol == unix.IPPROTO_ICMPV6 && kind >= 128 && kind <= 129: // echo
		return kind ^ 1
	case protocol != unix.IPPROTO_ICMP:
		return kind
	case kind == 8, kind == 0: // echo
		return kind ^ 8
	case kind >= 13 && kind <= 18: // timestamp, information, address mask
		return (kind - 1 ^ 1) + 1
	}
	return kind
}

// State is how far a TCP connection is, in the kernel's numbers.
type State uint8

// The states, in the order in which a connection goes through them.
const (
	StateNone State = iota
	StateSynSent
	StateSynReceived
	StateEstablished
	StateFinWait
	StateCloseWait
	StateLastAck
	StateTimeWait
	StateClosed
	StateListen
)

// Lives reports whether data may still be sent in a direction. An opening connection, and one that only waits
// for its removal, does not live.
func (s State) Lives() bool { return s >= StateEstablished && s <= StateLastAck }

// Label is the label of a connection.
type Label struct{ High, Low uint64 }

// Connection is one entry of a connection tracker.
type Connection struct {
	Zone uint16
	// Original is the direction of the opening side, Reply that of the answers: another address or port there
	// means a translation.
	Original, Reply Tuple
	// State is that of a TCP connection; for SCTP it has the kernel's number.
	State State
	// Liberal reports that the kernel accepts TCP segments with any sequence number.
	Liberal bool
	// VTags are the verification tags of an SCTP association.
	VTags [2]uint32
	// Replied reports that packets of both directions were seen.
	Replied bool
	Mark    uint32
	Label   Label
	// Timeout is when the entry ends without another packet, in the future.
	Timeout time.Duration
	// status has the kernel's bits, of which some cannot be changed.
	status uint32
	// windows is by how many bits the windows of a TCP connection's ends are scaled;
	// unscaled means that they are not.
	windows scale
}

// scale is the scale of two windows, and whether both ends have agreed to it.
type scale struct {
	agreed          bool
	original, reply uint8
}

// Translated reports whether an address or port is translated.
func (c *Connection) Translated() bool { return c.Reply != c.Original.Reverse() }
