package model

import (
	"encoding/base64"
	"net/netip"
)

// prefixLetter begins the identifiers of groups of one prefix.
const prefixLetter = 'c'

// PrefixGroup returns the identifier of the group of Networks whose only member is the
// prefix. The identifier contains the prefix, so a netfilter backend compares addresses
// with it and needs no set.
func PrefixGroup(p netip.Prefix) GroupID {
	data := append(p.Addr().AsSlice(), byte(p.Bits()))
	return GroupID(string(prefixLetter) + base64.RawURLEncoding.EncodeToString(data))
}

// Prefix returns the prefix of an identifier that PrefixGroup made. ok is false for the
// identifiers of other groups.
func (id GroupID) Prefix() (p netip.Prefix, ok bool) {
	if len(id) == 0 || id[0] != prefixLetter {
		return netip.Prefix{}, false
	}
	data, err := base64.RawURLEncoding.DecodeString(string(id[1:]))
	if err != nil || len(data) == 0 {
		return netip.Prefix{}, false
	}
	address, ok := netip.AddrFromSlice(data[:len(data)-1])
	p = netip.PrefixFrom(address, int(data[len(data)-1]))
	return p, ok && p.IsValid()
}
