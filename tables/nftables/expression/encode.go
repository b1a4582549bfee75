package expression

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Registers. Register 1 is 16 bytes wide and overlays the 4-byte registers
// from 8 on; a concatenation lies in consecutive 4-byte registers.
const (
	regVerdict = unix.NFT_REG_VERDICT
	reg1       = unix.NFT_REG_1
	reg2       = unix.NFT_REG_2
	reg32      = unix.NFT_REG32_00
)

// ipCTDirOriginal is IP_CT_DIR_ORIGINAL of linux/netfilter/nf_conntrack_tuple_common.h.
const ipCTDirOriginal = 0

// The flags of a TCP segment, and where they are (RFC 9293, section 3.1).
const (
	tcpFlagsOffset = 13

	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpACK = 0x10
)

// interfaceNameSize is IFNAMSIZ of linux/if.h, with the closing NUL.
const interfaceNameSize = 16

// encoder writes the expressions of one rule. It writes what nft writes for
// the same rule in a table of the inet family, so that nft lists it as a
// person would have written it.
type encoder struct {
	*Message
	family model.Family // that the rule is bound to, if any
}

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
		e.meta(unix.NFT_META_L4PROTO, reg1)
		e.compare(equality(m.Negated), byte(m.Protocol))
	case tables.MatchSYN:
		e.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, tcpFlagsOffset, 1, reg1)
		e.mask([]byte{tcpFIN | tcpSYN | tcpRST | tcpACK}, []byte{0})
		e.compare(equality(m.Negated), tcpSYN)
	case tables.MatchDestinationPorts:
		e.ports(m)
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
	case tables.MatchLoop:
		e.loop(m)
	case tables.MatchConnOriginal:
		e.conn(unix.NFT_CT_DIRECTION)
		e.compare(unix.NFT_CMP_EQ, ipCTDirOriginal)
	case tables.MatchMark:
		e.meta(unix.NFT_META_MARK, reg1)
		if m.Mask != ^uint32(0) {
			e.maskNumber(m.Mask, 0)
		}
		e.compareNumber(m.Negated, m.Value)
	case tables.MatchConnMark:
		e.conn(unix.NFT_CT_MARK)
		if m.Mask != ^uint32(0) {
			e.maskNumber(m.Mask, 0)
		}
		e.compareNumber(false, m.Value)
	default:
		return fmt.Errorf("unknown match %T", m)
	}
	return nil
}

// bind restricts the rule to packets of one family. It must come before any match on an
// IP header.
func (e *encoder) bind(f model.Family) {
	if e.family == f {
		return
	}
	e.family = f
	proto := byte(unix.NFPROTO_IPV4)
	if f == model.IPv6 {
		proto = unix.NFPROTO_IPV6
	}
	e.meta(unix.NFT_META_NFPROTO, reg1)
	e.compare(unix.NFT_CMP_EQ, proto)
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

// comparePrefix compares the address in register 1.
func (e *encoder) comparePrefix(p netip.Prefix, negated bool) {
	var buffer, ones, zeros [16]byte
	data := AppendAddress(buffer[:0], p.Addr())
	if wholeBytes(p) {
		e.compare(equality(negated), data[:p.Bits()/8]...)
		return
	}
	for i := range p.Bits() {
		ones[i/8] |= 0x80 >> (i % 8)
	}
	e.mask(ones[:len(data)], zeros[:len(data)])
	e.compare(equality(negated), data...)
}

func wholeBytes(p netip.Prefix) bool { return p.Bits() > 0 && p.Bits()%8 == 0 }

// action ends the rule. The counter counts packets that matched, so it stands
// before the action, and after the binding to the action's family.
func (e *encoder) action(a tables.Action) error {
	switch a := a.(type) {
	case tables.Dispatch:
		e.bind(a.Family)
	case tables.SourceNAT:
		e.bind(model.FamilyOf(a.To))
	case tables.KeepSource:
		e.bind(a.Family)
	}
	if r, ok := a.(tables.Report); ok {
		e.limit(r.PerSecond) // what is above is not counted
	}
	e.counter()
	switch a := a.(type) {
	case tables.Report:
		e.log(a)
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
	e.setMeta(unix.NFT_META_MARK)
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

// address loads a whole address of the IP header into register 1.
func (e *encoder) address(f model.Family, side tables.Side) {
	e.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, addressOffset(f, side), uint32(AddressSize(f)), reg1)
}

// destinationPort loads the destination port, which TCP, UDP and SCTP have at
// the same place.
func (e *encoder) destinationPort(register uint32) {
	e.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, register)
}

func addressOffset(f model.Family, side tables.Side) uint32 {
	offset := uint32(12) // RFC 791
	if f == model.IPv6 {
		offset = 8 // RFC 8200
	}
	if side == tables.Destination {
		offset += uint32(AddressSize(f))
	}
	return offset
}

// AddressSize returns the bytes of an address of the family.
func AddressSize(f model.Family) int {
	if f == model.IPv6 {
		return 16
	}
	return 4
}

// AppendAddress appends the bytes of an address as they are in a packet.
func AppendAddress(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		raw := a.As4()
		return append(b, raw[:]...)
	}
	raw := a.As16()
	return append(b, raw[:]...)
}

func equality(negated bool) uint32 {
	if negated {
		return unix.NFT_CMP_NEQ
	}
	return unix.NFT_CMP_EQ
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
	} {
		if s&b.state != 0 {
			bits |= b.bit
		}
	}
	return bits
}

// verdictCode returns the kernel's number of an action that is a verdict.
func verdictCode(a tables.Action) (expr.VerdictKind, error) {
	switch a.(type) {
	case tables.Accept:
		return expr.VerdictAccept, nil
	case tables.Drop:
		return expr.VerdictDrop, nil
	case tables.Return:
		return expr.VerdictReturn, nil
	case tables.Jump:
		return expr.VerdictJump, nil
	case tables.Goto:
		return expr.VerdictGoto, nil
	}
	return 0, fmt.Errorf("unknown action %T", a)
}

// native encodes a number as the kernel keeps marks and states: in host order.
func native(v uint32) (b [4]byte) {
	binary.NativeEndian.PutUint32(b[:], v)
	return b
}
