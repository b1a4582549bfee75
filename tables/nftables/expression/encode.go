package expression

import (
	"fmt"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// The flags of a TCP segment, and where they are (RFC 9293, section 3.1).
const (
	tcpFlagsOffset = 13

	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpACK = 0x10
)

// hopLimitOffset is where IPv6 has the hop limit (RFC 8200, section 3).
const hopLimitOffset = 7

// interfaceNameSize is IFNAMSIZ of linux/if.h, with the closing NUL.
const interfaceNameSize = 16

// Encode writes the expressions of a rule: its matches, a counter, its action. The
// caller has checked the rule (tables.Rule.Check); an error is an unknown match or action.
func Encode(m *Message, r tables.Rule) error {
	e := encoder{Message: m}
	for _, match := range r.Matches {
		if err := e.match(match); err != nil {
			return err
		}
	}
	return e.action(r.Action)
}

// WriteComment writes a rule's userdata: its hash and comment, as nft stores comments.
func WriteComment(m *Message, r tables.Rule, hash string) {
	at := len(m.B)
	m.Header(unix.NFTA_RULE_USERDATA, 0)
	m.B = append(m.B, byte(userdata.TypeComment), 0)
	m.B = append(tables.AppendKernelComment(m.B, hash, r.Comment), 0)
	m.B[at+unix.NLA_HDRLEN+1] = byte(len(m.B) - at - unix.NLA_HDRLEN - 2)
	m.Close(at)
	m.Pad()
}

func (e *encoder) match(m tables.Match) error {
	switch m := m.(type) {
	case tables.MatchProtocol:
		if f := m.Protocol.ICMPFamily(); f != 0 && !m.Negated {
			e.bind(f)
		}
		e.meta(unix.NFT_META_L4PROTO, reg1)
		e.compare(equality(m.Negated), byte(m.Protocol))
	case tables.MatchSYN:
		e.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, tcpFlagsOffset, 1, reg1)
		e.mask([]byte{tcpFIN | tcpSYN | tcpRST | tcpACK}, []byte{0})
		e.compare(equality(m.Negated), tcpSYN)
	case tables.MatchReset:
		e.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, tcpFlagsOffset, 1, reg1)
		e.mask([]byte{tcpRST}, []byte{0})
		e.compare(equality(false), tcpRST)
	case tables.MatchDestinationPorts:
		e.ports(m)
	case tables.MatchICMP:
		e.icmp(m)
	case tables.MatchSet:
		e.bind(m.Family)
		e.address(m.Family, m.Side)
		e.lookup(m.Set, false)
	case tables.MatchPortSet:
		e.portSet(m)
	case tables.MatchPrefix:
		e.prefix(m)
	case tables.MatchInterface:
		e.networkInterface(m)
	case tables.MatchEtherType:
		e.meta(unix.NFT_META_PROTOCOL, reg1)
		e.compare(unix.NFT_CMP_EQ, byte(m.Type>>8), byte(m.Type))
	case tables.MatchHopLimit:
		e.bind(model.IPv6)
		e.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, hopLimitOffset, 1, reg1)
		e.compare(equality(m.Negated), m.Hops)
	case tables.MatchConnState:
		e.conn(unix.NFT_CT_STATE)
		e.maskNumber(connStates(m.States), 0)
		e.compareNumber(true, 0)
	case tables.MatchLocal:
		e.local(m)
	case tables.MatchForwarded:
		e.meta(unix.NFT_META_IIF, reg1)
		e.compareNumber(true, 0)
	case tables.MatchConnSource:
		e.connSource(m)
	case tables.MatchConnDNAT:
		e.conn(unix.NFT_CT_STATUS)
		e.maskNumber(ipsDstNAT, 0)
		e.compareNumber(true, 0)
	case tables.MatchConnTranslated:
		e.conn(unix.NFT_CT_STATUS)
		e.maskNumber(ipsSrcNAT|ipsDstNAT, 0)
		e.compareNumber(true, 0)
	case tables.MatchLoop:
		e.loop(m)
	case tables.MatchSender:
		e.sender(m)
	case tables.MatchGrant:
		e.grant(m)
	case tables.MatchKey:
		e.bind(m.Family)
		return e.matchKey(m)
	case tables.MatchConnOriginal:
		e.conn(unix.NFT_CT_DIRECTION)
		e.compare(unix.NFT_CMP_EQ, ipCTDirOriginal)
	case tables.MatchMark:
		e.meta(unix.NFT_META_MARK, reg1)
		e.mark(m.Negated, m.Value, m.Mask)
	case tables.MatchConnMark:
		e.conn(unix.NFT_CT_MARK)
		e.mark(false, m.Value, m.Mask)
	default:
		return fmt.Errorf("unknown match %T", m)
	}
	return nil
}

// mark compares the bits of the mask of a loaded mark.
func (e *encoder) mark(negated bool, value, mask uint32) {
	if mask != ^uint32(0) {
		e.maskNumber(mask, 0)
	}
	e.compareNumber(negated, value)
}

func (e *encoder) networkInterface(m tables.MatchInterface) {
	key := uint32(unix.NFT_META_IIFNAME)
	if m.Side == tables.Destination {
		key = unix.NFT_META_OIFNAME
	}
	e.meta(key, reg1)
	// A prefix is compared in its own length, without the zero behind it.
	var value [interfaceNameSize]byte
	name, wildcard := strings.CutSuffix(m.Name, "*")
	n := copy(value[:], name)
	if !wildcard {
		n = len(value)
	}
	e.compare(equality(m.Negated), value[:n]...)
}

func (e *encoder) ports(m tables.MatchDestinationPorts) {
	e.destinationPort(reg1)
	if m.First == m.Last {
		e.compare(unix.NFT_CMP_EQ, byte(m.First>>8), byte(m.First))
		return
	}
	e.compare(unix.NFT_CMP_GTE, byte(m.First>>8), byte(m.First))
	e.compare(unix.NFT_CMP_LTE, byte(m.Last>>8), byte(m.Last))
}

// icmp compares the first two bytes of the message at once, as nft does.
func (e *encoder) icmp(m tables.MatchICMP) {
	value := []byte{m.Type, m.Code}
	if m.AnyCode {
		value = value[:1]
	}
	e.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, uint32(len(value)), reg1)
	e.compare(unix.NFT_CMP_EQ, value...)
}

func (e *encoder) portSet(m tables.MatchPortSet) {
	e.bind(m.Family)
	words := uint32(AddressSize(m.Family) / 4)
	// nft names a register by its 16-byte number where it can.
	protocol := reg32 + words
	if m.Family == model.IPv6 {
		protocol = reg2
	}
	e.address(m.Family, tables.Destination)
	e.meta(unix.NFT_META_L4PROTO, protocol)
	e.destinationPort(reg32 + words + 1)
	e.lookup(m.Set, false)
}

// prefix compares whole bytes of an address directly, as nft does, and masks
// only where the prefix ends inside a byte.
func (e *encoder) prefix(m tables.MatchPrefix) {
	family := model.FamilyOf(m.Prefix.Addr())
	e.bind(family)
	size := AddressSize(family)
	if wholeBytes(m.Prefix) {
		size = m.Prefix.Bits() / 8
	}
	e.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, addressOffset(family, m.Side), uint32(size), reg1)
	e.comparePrefix(m.Prefix, m.Negated)
}

// action ends the rule. The counter counts packets that matched, so it stands
// before the action, and after the binding to the action's family.
func (e *encoder) action(a tables.Action) error {
	switch a := a.(type) {
	case tables.Dispatch:
		e.bind(a.Family)
	case tables.DispatchKey:
		e.bind(a.Family)
	case tables.Translate:
		e.bind(a.Family)
	case tables.SourceNAT:
		e.bind(model.FamilyOf(a.To))
	case tables.KeepSource:
		e.bind(a.Family)
	case tables.Report:
		e.limit(a.PerSecond) // packets above the limit are not counted
	case tables.Reject:
		if a.Family != 0 {
			e.bind(a.Family)
		}
		e.limit(a.PerSecond)
	}
	e.counter()
	switch a := a.(type) {
	case tables.Report:
		e.log(a)
	case tables.Reject:
		return e.reject(a.With)
	case tables.NoTrack:
		e.noTrack()
	case tables.Masquerade:
		e.masquerade()
	case tables.SourceNAT:
		var buffer [16]byte
		e.immediate(AppendAddress(buffer[:0], a.To))
		e.sourceNAT(e.family)
	case tables.KeepSource:
		e.address(a.Family, tables.Source)
		e.sourceNAT(a.Family)
	case tables.SetMark:
		e.setMark(a)
	case tables.SetMarkAndReturn:
		e.setMark(tables.SetMark(a))
		return e.verdict(tables.Return{})
	case tables.SetConnMark:
		e.setConnMark(a)
	case tables.Dispatch:
		e.address(a.Family, a.Side)
		e.lookup(a.Map, true)
	case tables.DispatchKey:
		return e.dispatchKey(a)
	case tables.Translate:
		return e.translate(a)
	default:
		return e.verdict(a)
	}
	return nil
}

func (e *encoder) setMark(a tables.SetMark) {
	if a.Mask == ^uint32(0) {
		e.immediateNumber(a.Value)
	} else {
		e.meta(unix.NFT_META_MARK, reg1)
		e.maskNumber(^a.Mask, a.Value)
	}
	e.setMeta(unix.NFT_META_MARK, reg1)
}

func (e *encoder) setConnMark(a tables.SetConnMark) {
	if a.Mask == ^uint32(0) {
		e.immediateNumber(a.Value)
	} else {
		e.conn(unix.NFT_CT_MARK)
		e.maskNumber(^a.Mask, a.Value)
	}
	e.setConn(unix.NFT_CT_MARK)
}

// destinationPort loads the destination port, which TCP, UDP and SCTP have at
// the same place.
func (e *encoder) destinationPort(register uint32) {
	e.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, register)
}

// connStates translates to the kernel's bits, which are
// 1 << (enum ip_conntrack_info + 1), and 1 for invalid.
func connStates(s tables.ConnState) uint32 {
	var bits uint32
	for _, b := range [...]struct {
		state tables.ConnState
		bit   uint32
	}{
		{tables.StateInvalid, expr.CtStateBitINVALID},
		{tables.StateEstablished, expr.CtStateBitESTABLISHED},
		{tables.StateRelated, expr.CtStateBitRELATED},
		{tables.StateNew, expr.CtStateBitNEW},
		{tables.StateUntracked, expr.CtStateBitUNTRACKED},
	} {
		if s&b.state != 0 {
			bits |= b.bit
		}
	}
	return bits
}
