package truthtable

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// ipv4Prefix is the length of the IPv6 prefix below which the IPv4 addresses
// of a table are mapped.
const ipv4Prefix = 96

// MapAddr maps an IPv4 address of a table to a family: a.b.c.d stays itself
// for IPv4 and becomes fd00:10::a.b.c.d for IPv6. An IPv6 address stays as it
// is.
func MapAddr(a netip.Addr, f model.Family) netip.Addr {
	if f != model.IPv6 || !a.Is4() {
		return a
	}
	b4 := a.As4()
	b16 := [16]byte{0: 0xfd, 3: 0x10}
	copy(b16[12:], b4[:])
	return netip.AddrFrom16(b16)
}

// MapPrefix maps an IPv4 prefix like MapAddr: a.b.c.d/n becomes
// fd00:10::a.b.c.d/(96+n), but 0.0.0.0/0 becomes ::/0.
func MapPrefix(p netip.Prefix, f model.Family) netip.Prefix {
	switch {
	case f != model.IPv6 || !p.Addr().Is4():
		return p
	case p.Bits() == 0:
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(MapAddr(p.Addr(), f), ipv4Prefix+p.Bits())
}
