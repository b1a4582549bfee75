package model

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// GroupID names a group. It is deterministic (equal selectors give equal
// identifiers on every node and after every restart), at most 24 characters
// out of [a-zA-Z0-9_-], and begins with the letter of its kind: a, p, or for
// Networks n, and c for one prefix (PrefixGroup).
type GroupID string

// Kind returns the kind of the group, which the first letter of its identifier shows; zero if unknown.
func (id GroupID) Kind() GroupKind {
	switch {
	case strings.HasPrefix(string(id), "a"):
		return Addresses
	case strings.HasPrefix(string(id), "n"), strings.HasPrefix(string(id), string(prefixLetter)):
		return Networks
	case strings.HasPrefix(string(id), "p"):
		return AddressPorts
	}
	return 0
}

// GroupKind is the kind of a group's members.
type GroupKind uint8

const (
	// Addresses are the single addresses of the pods that a selector matches.
	Addresses GroupKind = iota + 1
	// Networks are the prefixes of ipBlocks and of their exceptions. The longest prefix
	// that contains an address decides whether the group has the address (Member.Except).
	Networks
	// AddressPorts are (address, protocol, port) triples: named ports as the
	// matched pods declare them.
	AddressPorts
	// Loops are single addresses, each looked up as source and destination of one packet. No policy has such
	// a group: they match a pod that reaches itself through a Service.
	Loops
	// Senders are prefixes, each with the MAC address that packets from there have. No policy has such a group.
	Senders
	// Grants are entries of the layout maps (see Grant), AnyPortGrants those for every protocol and port. No policy has
	// such a group.
	Grants
	AnyPortGrants
)

// Grants reports whether the members are grants.
func (k GroupKind) Grants() bool { return k == Grants || k == AnyPortGrants }

// String returns the kind's name.
func (k GroupKind) String() string {
	switch k {
	case Addresses:
		return "addresses"
	case Networks:
		return "networks"
	case AddressPorts:
		return "address-ports"
	case Loops:
		return "loops"
	case Senders:
		return "senders"
	case Grants:
		return "grants"
	case AnyPortGrants:
		return "grants for every port"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Member is one member of a group. Prefix is always masked; it is a single
// address (/32 or /128) unless the kind is Networks or Senders. Protocol and Port are
// zero unless the kind is AddressPorts or Grants.
type Member struct {
	Prefix   netip.Prefix `json:"prefix"`
	Protocol Protocol     `json:"protocol,omitzero"`
	Port     uint16       `json:"port,omitempty"`
	// Except takes the prefix out of a group of Networks, except for longer
	// prefixes within it.
	Except bool `json:"except,omitempty"`
	// Last makes the member the range from the address of Prefix, which is a single
	// one, to Last. Only interval sets of nftables have such members.
	Last netip.Addr `json:"last,omitzero"`
	// MAC is zero unless the kind is Senders.
	MAC MAC `json:"mac,omitzero"`
}

// RangeMember returns the member for a range of addresses: a prefix if it is one.
func RangeMember(r netipx.IPRange) Member {
	if p, ok := r.Prefix(); ok {
		return Member{Prefix: p}
	}
	m := AddressMember(r.From())
	m.Last = r.To()
	return m
}

// Range returns the addresses of the member.
func (m Member) Range() netipx.IPRange {
	if m.Last.IsValid() {
		return netipx.IPRangeFrom(m.Prefix.Addr(), m.Last)
	}
	return netipx.RangeOfPrefix(m.Prefix)
}

// AddressMember returns the member for a single address.
func AddressMember(a netip.Addr) Member {
	a = a.Unmap()
	return Member{Prefix: netip.PrefixFrom(a, a.BitLen())}
}

// Family returns the family of the member's prefix.
func (m Member) Family() Family { return FamilyOf(m.Prefix.Addr()) }

// Compare orders members by address, prefix length, protocol, port, then exceptions
// behind others, and then by the end of the range and the MAC address.
func (m Member) Compare(o Member) int {
	if c := m.Prefix.Addr().Compare(o.Prefix.Addr()); c != 0 {
		return c
	}
	if c := m.Prefix.Bits() - o.Prefix.Bits(); c != 0 {
		return c
	}
	if c := int(m.Protocol) - int(o.Protocol); c != 0 {
		return c
	}
	if c := int(m.Port) - int(o.Port); c != 0 {
		return c
	}
	if m.Except != o.Except {
		if m.Except {
			return 1
		}
		return -1
	}
	if c := m.Last.Compare(o.Last); c != 0 {
		return c
	}
	return bytes.Compare(m.MAC[:], o.MAC[:])
}

// String returns the address, the prefix, the range "first-last" or
// "address,proto/port"; "nomatch" follows an exception, as ipset says it.
func (m Member) String() string {
	s := m.Prefix.String()
	if m.Prefix.IsSingleIP() {
		s = m.Prefix.Addr().String()
	}
	if m.Protocol != AnyProtocol {
		s += fmt.Sprintf(",%s/%d", m.Protocol, m.Port)
	}
	if m.Last.IsValid() {
		s += "-" + m.Last.String()
	}
	if m.MAC != (MAC{}) {
		s += " by " + m.MAC.String()
	}
	if m.Except {
		s += " nomatch"
	}
	return s
}

// Group is a set of members with the selector it stands for.
type Group struct {
	ID   GroupID   `json:"id"`
	Kind GroupKind `json:"kind"`
	// Description is the selector in words, for people.
	Description string `json:"description"`
}
