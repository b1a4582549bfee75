package openflow

import (
	"encoding/binary"
	encoding "encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// term is a field with a value and, if not nil, a mask.
type term struct {
	field       Field
	value, mask []byte
}

// newTerm returns a term in its one form: bits that the mask leaves out are
// zero, and there is no mask where it has all bits.
func newTerm(f Field, value, mask []byte) term {
	if mask == nil || len(mask) != len(value) || !slices.ContainsFunc(mask, func(b byte) bool { return b != 0xff }) {
		return term{f, value, nil}
	}
	value = slices.Clone(value)
	for i := range value {
		value[i] &= mask[i]
	}
	return term{f, value, mask}
}

func (t term) valueString() string {
	s := t.field.spec()
	switch s.format {
	case mac:
		return withMask(net.HardwareAddr(t.value).String(), t.mask, func(m []byte) string { return net.HardwareAddr(m).String() })
	case ip:
		return withMask(addrString(t.value), t.mask, maskString)
	case hexadecimal:
		return withMask(hex(t.value), t.mask, hex)
	case decimal:
		if t.field == InPort && number(t.value) == uint64(LocalPort) {
			return "LOCAL"
		}
		if t.mask != nil {
			return fmt.Sprintf("%#x/%#x", number(t.value), number(t.mask))
		}
		return strconv.FormatUint(number(t.value), 10)
	case flags:
		return flagsString(t.field.Flags(), t.value, t.mask)
	case fragment:
		const later = 2
		if number(t.value)&later == 0 {
			return "yes"
		}
		return "later"
	}
	return "?"
}

// wire appends the term as an OXM field: header, value and mask.
func (t term) wire(b []byte) ([]byte, error) {
	s := t.field.spec()
	if s.width == 0 || len(t.value) != s.width || (t.mask != nil && len(t.mask) != s.width) {
		return nil, fmt.Errorf("field %s: value of %d bytes, want %d", s.match, len(t.value), s.width)
	}
	if t.mask == nil {
		return append(append(b, s.header(false)...), t.value...), nil
	}
	b = append(append(b, s.header(true)...), t.value...)
	return append(b, t.mask...), nil
}

// position orders the fields of a match: by class and number. Only nw_frag and nw_ttl come
// later than their class, behind ip_proto: OpenFlow wants their prerequisite, the Ethernet
// type, before them.
func (s spec) position() uint32 {
	at := func(s spec) uint32 { return uint32(s.class)<<16 | uint32(s.number)<<2 }
	for i, late := range []Field{IPFrag, IPTTL} {
		if l := late.spec(); s.class == l.class && s.number == l.number {
			return at(IPProto.spec()) + 1 + uint32(i)
		}
	}
	return at(s)
}

// header is the OXM header of the field.
func (s spec) header(masked bool) []byte {
	h := []byte{byte(s.class >> 8), byte(s.class), s.number << 1, byte(s.width)}
	if masked {
		h[2] |= 1
		h[3] *= 2
	}
	return h
}

// flagsString writes "+" and "-" flags as ovs-ofctl does, which have names from the
// lowest bit. Without a mask all flags are compared.
func flagsString(names []string, value, mask []byte) string {
	var b strings.Builder
	for i, name := range names {
		bit := uint64(1) << i
		switch {
		case mask != nil && number(mask)&bit == 0:
		case number(value)&bit != 0:
			b.WriteString("+" + name)
		default:
			b.WriteString("-" + name)
		}
	}
	return b.String()
}

func withMask(value string, mask []byte, render func([]byte) string) string {
	if mask == nil {
		return value
	}
	return value + "/" + render(mask)
}

func addrString(b []byte) string {
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return "?"
	}
	return a.String()
}

// maskString renders a contiguous mask as its length, and any other one as an
// address.
func maskString(mask []byte) string {
	ones, bits := net.IPMask(mask).Size()
	if bits == 0 {
		return addrString(mask)
	}
	return strconv.Itoa(ones)
}

func number(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// hex writes zero as ovs-ofctl does, without a prefix.
func hex(b []byte) string {
	digits := strings.TrimLeft(encoding.EncodeToString(b), "0")
	if digits == "" {
		return "0"
	}
	return "0x" + digits
}

func uint16Bytes(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
func uint32Bytes(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
