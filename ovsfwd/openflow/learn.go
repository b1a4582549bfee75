package openflow

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

// LearnSpec is a flow that Open vSwitch adds when a packet matches. No FlowTable has such a
// flow in its desired state, so its cookie must not have a FlowTable's owner.
type LearnSpec struct {
	Table    uint8
	Priority uint16
	// IdleTimeout is the seconds without a packet after which the flow is removed.
	IdleTimeout uint16
	Cookie      uint64
	// Limit is how many flows with that cookie the table may have; when there are as
	// many, no more is learned.
	Limit uint32
	// Match is the fixed part of the flow's match. It has no masks.
	Match Match
	// Copies are the fields that the flow matches with the packet's values.
	Copies []FieldCopy
	// Sets are the register writes of the flow.
	Sets []RegisterBits
}

// FieldCopy says that a field is matched with the value that From has in the
// packet.
type FieldCopy struct{ Field, From Field }

// RegisterBits are neighbouring bits of a register.
type RegisterBits struct {
	Register    Field
	Value, Mask uint32
}

// offset and width of the bits that the mask selects.
func (r RegisterBits) offset() int { return bits.TrailingZeros32(r.Mask) }

func (r RegisterBits) width() int { return bits.OnesCount32(r.Mask) }

// String writes the bits as in "0x1->NXM_NX_REG0[23]".
func (r RegisterBits) String() string {
	return fmt.Sprintf("%#x->%s", r.Value>>r.offset(), r.Register.BitRange(r.offset(), r.width()))
}

type learn struct{ LearnSpec }

// Learn installs a flow made of the packet, or keeps the one that is there.
func Learn(s LearnSpec) Action { return learn{s} }

func (a learn) String() string {
	words := []string{
		fmt.Sprintf("table=%d,idle_timeout=%d,priority=%d,cookie=%#x,limit=%d", a.Table, a.IdleTimeout, a.Priority, a.Cookie, a.Limit),
	}
	for _, t := range a.Match.terms {
		name := t.field.spec().set
		if t.field == IPProto {
			name = t.field.spec().match
		}
		words = append(words, name+"="+t.valueString())
	}
	for _, c := range a.Copies {
		word := c.Field.LongName() + "[]"
		if c.From != c.Field {
			word += "=" + c.From.LongName() + "[]"
		}
		words = append(words, word)
	}
	for _, s := range a.Sets {
		words = append(words, "load:"+s.String())
	}
	return "learn(" + strings.Join(words, ",") + ")"
}

// Header bits of one specification of a learned flow: the source of the value, its
// use, and its width in bits (OVS, lib/ofp-actions.c).
const (
	learnFromValue = 1 << 13
	learnLoad      = 1 << 11
)

func (a learn) wire(b []byte) ([]byte, error) {
	start := len(b)
	b = startNicira(b, niciraLearn2)
	b = binary.BigEndian.AppendUint16(b, a.IdleTimeout)
	b = append(b, 0, 0) // no hard timeout
	b = binary.BigEndian.AppendUint16(b, a.Priority)
	b = binary.BigEndian.AppendUint64(b, a.Cookie)
	b = append(b, 0, 0, a.Table, 0, 0, 0, 0, 0) // no flags; no timeouts when a connection ends
	b = binary.BigEndian.AppendUint32(b, a.Limit)
	b = append(b, 0, 0, 0, 0) // the result is stored nowhere
	for _, t := range a.Match.terms {
		if t.mask != nil {
			return nil, fmt.Errorf("learned flow: field %s has a mask", t.field.spec().match)
		}
		b = learnValue(b, t.value, len(t.value)*8, 0)
		b = learnField(b, t.field, 0)
	}
	for _, c := range a.Copies {
		from, to := c.From.spec(), c.Field.spec()
		if from.width != to.width || to.width == 0 {
			return nil, fmt.Errorf("learned flow: %s from %s: widths differ", to.match, from.match)
		}
		b = binary.BigEndian.AppendUint16(b, uint16(to.width*8))
		b = learnField(learnField(b, c.From, 0), c.Field, 0)
	}
	for _, s := range a.Sets {
		if s.Mask == 0 || s.Mask>>s.offset() != 1<<s.width()-1 {
			return nil, fmt.Errorf("learned flow: bits %#x of %s are not neighbours", s.Mask, s.Register.spec().match)
		}
		b = learnValue(b, uint32Bytes(s.Value>>s.offset()), s.width(), learnLoad)
		b = learnField(b, s.Register, s.offset())
	}
	return endAction(b, start), nil
}

// learnValue appends a specification's header and its value. The value is right-aligned
// and padded to a multiple of two bytes.
func learnValue(b, value []byte, width int, use uint16) []byte {
	b = binary.BigEndian.AppendUint16(b, learnFromValue|use|uint16(width))
	size := (width + 15) / 16 * 2
	for len(value) < size {
		value = append([]byte{0}, value...)
	}
	return append(b, value[len(value)-size:]...)
}

func learnField(b []byte, f Field, offset int) []byte {
	b = append(b, f.learnSpec().header(false)...)
	return binary.BigEndian.AppendUint16(b, uint16(offset))
}

// learnSpec returns a field's numbering within a learned flow. If the field has an NXM
// number, the switch returns it in dumps, and a dump must equal the flow that was sent.
func (f Field) learnSpec() spec {
	s := f.spec()
	switch f {
	case EthDst:
		s.class, s.number = basic, 1
	case EthSrc:
		s.class, s.number = basic, 2
	case EthType:
		s.class, s.number = basic, 3
	case IPProto:
		s.class, s.number = basic, 6
	case IPv4Src:
		s.class, s.number = basic, 7
	case IPv4Dst:
		s.class, s.number = basic, 8
	case TCPSrc:
		s.class, s.number = basic, 9
	case TCPDst:
		s.class, s.number = basic, 10
	case UDPSrc:
		s.class, s.number = basic, 11
	case UDPDst:
		s.class, s.number = basic, 12
	case IPv6Src:
		s.class, s.number = nicira, 19
	case IPv6Dst:
		s.class, s.number = nicira, 20
	}
	return s
}
