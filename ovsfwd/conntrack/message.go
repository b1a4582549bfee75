package conntrack

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// Attributes of a connection (linux/netfilter/nfnetlink_conntrack.h).
const (
	attrOriginal   = 1
	attrReply      = 2
	attrStatus     = 3
	attrProtoinfo  = 4
	attrTimeout    = 7
	attrMark       = 8
	attrZone       = 18
	attrMarkMask   = 21
	attrLabels     = 22
	attrLabelsMask = 23

	attrTupleIP    = 1
	attrTupleProto = 2

	attrIPv4Src = 1
	attrIPv4Dst = 2
	attrIPv6Src = 3
	attrIPv6Dst = 4

	attrProtoNumber = 1
	attrSrcPort     = 2
	attrDstPort     = 3
	attrICMPID      = 4
	attrICMPType    = 5
	attrICMPCode    = 6
	attrICMPv6ID    = 7
	attrICMPv6Type  = 8
	attrICMPv6Code  = 9

	attrInfoTCP  = 1
	attrInfoSCTP = 3

	attrTCPState         = 1
	attrTCPScaleOriginal = 2
	attrTCPScaleReply    = 3
	attrTCPFlagsOriginal = 4
	attrTCPFlagsReply    = 5

	attrSCTPState    = 1
	attrSCTPOriginal = 2
	attrSCTPReply    = 3
)

// Bits of a connection's status (linux/netfilter/nf_conntrack_common.h).
const (
	statusReplied   uint32 = 1 << 1
	statusAssured   uint32 = 1 << 2
	statusConfirmed uint32 = 1 << 3
)

// tcpLiberal is IP_CT_TCP_FLAG_BE_LIBERAL: segments with any sequence number are in the window.
const tcpLiberal uint8 = 0x08

// tcpScaled is IP_CT_TCP_FLAG_WINDOW_SCALE: the end has said how it scales its window.
const tcpScaled uint8 = 0x01

// labelMask returns the bits of the label that are written.
func (p *Put) labelMask() Label {
	return Label{High: p.Label.High | p.ClearLabel.High, Low: p.Label.Low | p.ClearLabel.Low}
}

func family(t Tuple) uint8 {
	if t.Src.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func (p *Put) statusToWrite() uint32 {
	status := statusConfirmed
	if !p.New {
		status |= p.status // some bits may not change
	}
	if p.Replied {
		status |= statusReplied | statusAssured
	}
	return status
}

func putTuple(b *nfnetlink.Buffer, kind uint16, t Tuple) {
	tuple := b.Nest(kind)
	ip := b.Nest(attrTupleIP)
	if t.Src.Is4() {
		b.Data(attrIPv4Src, t.Src.AsSlice())
		b.Data(attrIPv4Dst, t.Dst.AsSlice())
	} else {
		b.Data(attrIPv6Src, t.Src.AsSlice())
		b.Data(attrIPv6Dst, t.Dst.AsSlice())
	}
	b.Close(ip)
	proto := b.Nest(attrTupleProto)
	b.Uint8(attrProtoNumber, t.Protocol)
	switch t.Protocol {
	case unix.IPPROTO_ICMP:
		b.Uint16(attrICMPID, t.ICMPID)
		b.Uint8(attrICMPType, t.ICMPType)
		b.Uint8(attrICMPCode, t.ICMPCode)
	case unix.IPPROTO_ICMPV6:
		b.Uint16(attrICMPv6ID, t.ICMPID)
		b.Uint8(attrICMPv6Type, t.ICMPType)
		b.Uint8(attrICMPv6Code, t.ICMPCode)
	default:
		b.Uint16(attrSrcPort, t.SrcPort)
		b.Uint16(attrDstPort, t.DstPort)
	}
	b.Close(proto)
	b.Close(tuple)
}

// putProtoinfo writes the protocol's state of the connection.
func putProtoinfo(b *nfnetlink.Buffer, p *Put, whole bool) {
	switch {
	case p.Original.Protocol == unix.IPPROTO_TCP:
		info := b.Nest(attrProtoinfo)
		tcp := b.Nest(attrInfoTCP)
		if whole {
			b.Uint8(attrTCPState, uint8(p.State))
		}
		var flags uint8
		if p.Liberal {
			flags |= tcpLiberal
		}
		if p.New && p.windows.agreed {
			flags |= tcpScaled
			b.Uint8(attrTCPScaleOriginal, p.windows.original)
			b.Uint8(attrTCPScaleReply, p.windows.reply)
		}
		if flags != 0 {
			// struct nf_ct_tcp_flags: flags, mask.
			b.Data(attrTCPFlagsOriginal, []byte{flags, flags})
			b.Data(attrTCPFlagsReply, []byte{flags, flags})
		}
		b.Close(tcp)
		b.Close(info)
	case p.Original.Protocol == unix.IPPROTO_SCTP && whole:
		info := b.Nest(attrProtoinfo)
		sctp := b.Nest(attrInfoSCTP)
		b.Uint8(attrSCTPState, uint8(p.State))
		b.Uint32(attrSCTPOriginal, p.VTags[0])
		b.Uint32(attrSCTPReply, p.VTags[1])
		b.Close(sctp)
		b.Close(info)
	}
}

// parse reads the attributes of a connection; it returns false if a tuple is missing.
func parse(attributes []byte) (Connection, bool) {
	var c Connection
	for kind, v := range nfnetlink.Attributes(attributes) {
		switch kind {
		case attrOriginal:
			c.Original = parseTuple(v)
		case attrReply:
			c.Reply = parseTuple(v)
		case attrStatus:
			c.status = number32(v)
			c.Replied = c.status&statusReplied != 0
		case attrProtoinfo:
			parseProtoinfo(&c, v)
		case attrTimeout:
			c.Timeout = time.Duration(number32(v)) * time.Second
		case attrMark:
			c.Mark = number32(v)
		case attrZone:
			c.Zone = number16(v)
		case attrLabels:
			c.Label = parseLabel(v)
		}
	}
	return c, c.Original.valid() && c.Reply.valid()
}

func (t Tuple) valid() bool { return t.Src.IsValid() && t.Dst.IsValid() && t.Src.Is4() == t.Dst.Is4() }

func parseTuple(b []byte) Tuple {
	var t Tuple
	for kind, v := range nfnetlink.Attributes(b) {
		switch kind {
		case attrTupleIP:
			for kind, v := range nfnetlink.Attributes(v) {
				switch kind {
				case attrIPv4Src, attrIPv6Src:
					t.Src, _ = netip.AddrFromSlice(v)
				case attrIPv4Dst, attrIPv6Dst:
					t.Dst, _ = netip.AddrFromSlice(v)
				}
			}
		case attrTupleProto:
			parseProto(&t, v)
		}
	}
	return t
}

func parseProto(t *Tuple, b []byte) {
	for kind, v := range nfnetlink.Attributes(b) {
		switch kind {
		case attrProtoNumber:
			t.Protocol = number8(v)
		case attrSrcPort:
			t.SrcPort = number16(v)
		case attrDstPort:
			t.DstPort = number16(v)
		case attrICMPID, attrICMPv6ID:
			t.ICMPID = number16(v)
		case attrICMPType, attrICMPv6Type:
			t.ICMPType = number8(v)
		case attrICMPCode, attrICMPv6Code:
			t.ICMPCode = number8(v)
		}
	}
}

func parseProtoinfo(c *Connection, b []byte) {
	for protocol, info := range nfnetlink.Attributes(b) {
		var flags [2]uint8
		for kind, v := range nfnetlink.Attributes(info) {
			switch {
			case protocol == attrInfoTCP && kind == attrTCPState, protocol == attrInfoSCTP && kind == attrSCTPState:
				c.State = State(number8(v))
			case protocol == attrInfoTCP && kind == attrTCPFlagsOriginal:
				flags[0] = number8(v)
			case protocol == attrInfoTCP && kind == attrTCPFlagsReply:
				flags[1] = number8(v)
			case protocol == attrInfoTCP && kind == attrTCPScaleOriginal:
				c.windows.original = number8(v)
			case protocol == attrInfoTCP && kind == attrTCPScaleReply:
				c.windows.reply = number8(v)
			case protocol == attrInfoSCTP && kind == attrSCTPOriginal:
				c.VTags[0] = number32(v)
			case protocol == attrInfoSCTP && kind == attrSCTPReply:
				c.VTags[1] = number32(v)
			}
		}
		c.Liberal = flags[0]&flags[1]&tcpLiberal != 0
		c.windows.agreed = flags[0]&flags[1]&tcpScaled != 0
	}
}

// bytes returns the label as the kernel, and its Open vSwitch datapath, keep it
// in memory.
func (l Label) bytes() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, l.Low), l.High)
}

func parseLabel(b []byte) Label {
	var whole [16]byte
	copy(whole[:], b)
	return Label{High: binary.LittleEndian.Uint64(whole[8:]), Low: binary.LittleEndian.Uint64(whole[:])}
}

func number8(b []byte) uint8 {
	if len(b) < 1 {
		return 0
	}
	return b[0]
}

func number16(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func number32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// Put is an entry to write.
type Put struct {
	Connection
	// Instead is an entry from Dump, or nil, that has to go first: the two have the same answers. The kernel gets
	// both messages in one batch. If it has the same Original and has ended meanwhile, so has the new one.
	Instead *Connection
	// New means that there is no entry yet; otherwise the entry comes from Dump. The Reply of a new entry says how its addresses are translated.
	New bool
	// MarkMask selects the bits of the mark that are set as in Mark; all others
	// stay.
	MarkMask uint32
	// ClearLabel has the bits of the label that are cleared unless Label has them.
	ClearLabel Label
	// Revive also writes state, timeout and flags of an existing entry. Without it, the entry only gets the
	// mark and, if desired, liberal windows. Translations of addresses are never changed.
	Revive bool
}
