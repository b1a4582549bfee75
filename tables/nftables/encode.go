package nftables

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

// interfaceNameSize is IFNAMSIZ of linux/if.h, with the closing NUL.
const interfaceNameSize = 16

// encoder collects the expressions of one rule. It emits what nft emits for
// the same rule in a table of the inet family, so that nft lists it as a
// person would have written it.
type encoder struct {
	exprs  []expr.Any
	family model.Family // that the rule is bound to, if any
}

// encode returns the expressions of a rule: its matches, a counter, its
// action. It is the caller's to have checked the rule.
func encode(r tables.Rule) ([]expr.Any, error) {
	e := encoder{exprs: make([]expr.Any, 0, 4*len(r.Matches)+3)}
	for _, m := range r.Matches {
		if err := e.match(m); err != nil {
			return nil, err
		}
	}
	if err := e.action(r.Action); err != nil {
		return nil, err
	}
	return e.exprs, nil
}

// comment returns a rule's userdata: its comment as nft stores it.
func comment(r tables.Rule) []byte {
	return userdata.AppendString(nil, userdata.TypeComment, r.KernelComment())
}

func (e *encoder) add(exprs ...expr.Any) { e.exprs = append(e.exprs, exprs...) }

func (e *encoder) match(m tables.Match) error {
	switch m := m.(type) {
	case tables.MatchProtocol:
		e.add(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1}, compare(false, []byte{byte(m.Protocol)}))
	case tables.MatchDestinationPorts:
		e.ports(m)
	case tables.MatchSet:
		e.bind(m.Family)
		e.add(address(m.Family, m.Side), &expr.Lookup{SourceRegister: reg1, SetName: m.Set})
	case tables.MatchPortSet:
		e.portSet(m)
	case tables.MatchPrefix:
		e.prefix(m)
	case tables.MatchInterface:
		key := expr.MetaKeyIIFNAME
		if m.Side == tables.Destination {
			key = expr.MetaKeyOIFNAME
		}
		// A prefix is compared in its own length, without the zero behind it.
		name, wildcard := strings.CutSuffix(m.Name, "*")
		value := []byte(name)
		if !wildcard {
			value = make([]byte, interfaceNameSize)
			copy(value, name)
		}
		e.add(&expr.Meta{Key: key, Register: reg1}, compare(m.Negated, value))
	case tables.MatchConnState:
		e.add(&expr.Ct{Key: expr.CtKeySTATE, Register: reg1},
			mask(native(connStates(m.States)), native(0)), compare(true, native(0)))
	case tables.MatchMark:
		e.add(&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1})
		if m.Mask != ^uint32(0) {
			e.add(mask(native(m.Mask), native(0)))
		}
		e.add(compare(m.Negated, native(m.Value)))
	default:
		return fmt.Errorf("unknown match %T", m)
	}
	return nil
}

// bind makes the rule match packets of one family only, which any look at an
// IP header needs before it.
func (e *encoder) bind(f model.Family) {
	if e.family == f {
		return
	}
	e.family = f
	proto := byte(unix.NFPROTO_IPV4)
	if f == model.IPv6 {
		proto = unix.NFPROTO_IPV6
	}
	e.add(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: reg1}, compare(false, []byte{proto}))
}

func (e *encoder) ports(m tables.MatchDestinationPorts) {
	e.add(destinationPort(reg1))
	if m.First == m.Last {
		e.add(compare(false, big(m.First)))
		return
	}
	e.add(
		&expr.Cmp{Op: expr.CmpOpGte, Register: reg1, Data: big(m.First)},
		&expr.Cmp{Op: expr.CmpOpLte, Register: reg1, Data: big(m.Last)},
	)
}

func (e *encoder) portSet(m tables.MatchPortSet) {
	e.bind(m.Family)
	words := uint32(addressSize(m.Family) / 4)
	// nft names a register by its 16-byte number where it can.
	protocol := reg32 + words
	if m.Family == model.IPv6 {
		protocol = reg2
	}
	e.add(
		address(m.Family, tables.Destination),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: protocol},
		destinationPort(reg32+words+1),
		&expr.Lookup{SourceRegister: reg1, SetName: m.Set},
	)
}

// prefix compares whole bytes of an address directly, as nft does, and masks
// only where the prefix ends inside a byte.
func (e *encoder) prefix(m tables.MatchPrefix) {
	family := model.FamilyOf(m.Prefix.Addr())
	e.bind(family)
	load, data, bits := address(family, m.Side), m.Prefix.Addr().AsSlice(), m.Prefix.Bits()
	if bits > 0 && bits%8 == 0 {
		load.Len = uint32(bits / 8)
		e.add(load, compare(m.Negated, data[:bits/8]))
		return
	}
	e.add(load, mask(netmask(bits, len(data)), make([]byte, len(data))), compare(m.Negated, data))
}

// action ends the rule. The counter counts packets that matched, so it stands
// before the action; of a dispatch, after the binding to its family.
func (e *encoder) action(a tables.Action) error {
	if d, ok := a.(tables.Dispatch); ok {
		e.bind(d.Family)
	}
	e.add(&expr.Counter{})
	switch a := a.(type) {
	case tables.Masquerade:
		e.add(&expr.Masq{})
	case tables.SetMark:
		e.setMark(a)
	case tables.Dispatch:
		e.add(address(a.Family, a.Side),
			&expr.Lookup{SourceRegister: reg1, SetName: a.Map, IsDestRegSet: true, DestRegister: regVerdict})
	default:
		v, err := verdict(a)
		if err != nil {
			return err
		}
		e.add(v)
	}
	return nil
}

func (e *encoder) setMark(a tables.SetMark) {
	if a.Mask == ^uint32(0) {
		e.add(&expr.Immediate{Register: reg1, Data: native(a.Value)})
	} else {
		e.add(&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1}, mask(native(^a.Mask), native(a.Value)))
	}
	e.add(&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1, SourceRegister: true})
}

// verdict returns the verdict for an action that is one.
func verdict(a tables.Action) (*expr.Verdict, error) {
	switch a := a.(type) {
	case tables.Accept:
		return &expr.Verdict{Kind: expr.VerdictAccept}, nil
	case tables.Drop:
		return &expr.Verdict{Kind: expr.VerdictDrop}, nil
	case tables.Return:
		return &expr.Verdict{Kind: expr.VerdictReturn}, nil
	case tables.Jump:
		return &expr.Verdict{Kind: expr.VerdictJump, Chain: a.Chain}, nil
	case tables.Goto:
		return &expr.Verdict{Kind: expr.VerdictGoto, Chain: a.Chain}, nil
	}
	return nil, fmt.Errorf("unknown action %T", a)
}

// address loads a whole address of the IP header into register 1.
func address(f model.Family, side tables.Side) *expr.Payload {
	offset, size := uint32(12), addressSize(f) // RFC 791
	if f == model.IPv6 {
		offset = 8 // RFC 8200
	}
	if side == tables.Destination {
		offset += uint32(size)
	}
	return &expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(size)}
}

// destinationPort loads the destination port, which TCP, UDP and SCTP have at
// the same place.
func destinationPort(register uint32) *expr.Payload {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

func addressSize(f model.Family) int {
	if f == model.IPv6 {
		return 16
	}
	return 4
}

func compare(negated bool, data []byte) *expr.Cmp {
	op := expr.CmpOpEq
	if negated {
		op = expr.CmpOpNeq
	}
	return &expr.Cmp{Op: op, Register: reg1, Data: data}
}

// mask replaces register 1 by (register 1 & and) ^ xor.
func mask(and, xor []byte) *expr.Bitwise {
	return &expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: uint32(len(and)), Mask: and, Xor: xor}
}

func netmask(bits, size int) []byte {
	ones := make([]byte, size)
	for i := range ones {
		ones[i] = 0xff
	}
	all, _ := netip.AddrFromSlice(ones)
	return netip.PrefixFrom(all, bits).Masked().Addr().AsSlice()
}

// connStates translates to the kernel's bits, which are
// 1 << (enum ip_conntrack_info + 1), and 1 for invalid.
func connStates(s tables.ConnState) uint32 {
	var bits uint32
	for _, b := range []struct {
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

// native encodes a number as the kernel keeps marks and states: in host order.
func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// big encodes a port as it is in the packet.
func big(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
