package expression

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// encoder writes the expressions of one rule, the same as nft writes for the rule in a table of the inet
// family, so that nft lists it in its usual form.
type encoder struct {
	*Message
	family model.Family // that the rule is bound to, if any
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

// address loads a whole address of the IP header into register 1.
func (e *encoder) address(f model.Family, side tables.Side) {
	e.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, addressOffset(f, side), uint32(AddressSize(f)), reg1)
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

// ipCTDirOriginal is IP_CT_DIR_ORIGINAL of linux/netfilter/nf_conntrack_tuple_common.h.
const ipCTDirOriginal = 0
