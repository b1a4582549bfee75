package model

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Grant lets packets of one protocol and port through, or all packets, between the pods of a list of policies
// and the peers of an identity. Lists and identities are numbers. A set of the kind Grants or AnyPortGrants has
// grants.
type Grant struct {
	List uint32
	// Peers is the identity, or zero for every peer.
	Peers uint32
	// Protocol and Port are zero in a set of the kind AnyPortGrants.
	Protocol Protocol
	Port     uint16
}

// String returns "list 0x80000001, all peers, tcp/80" or the like.
func (g Grant) String() string {
	s := fmt.Sprintf("list 0x%08x, all peers", g.List)
	if g.Peers != 0 {
		s = fmt.Sprintf("list 0x%08x, identity 0x%08x", g.List, g.Peers)
	}
	if g.Protocol != AnyProtocol {
		s += fmt.Sprintf(", %s/%d", g.Protocol, g.Port)
	}
	return s
}

// Member returns the member for a grant. Both numbers are in the address.
func (g Grant) Member() Member {
	var b [16]byte
	binary.BigEndian.PutUint32(b[:], g.List)
	binary.BigEndian.PutUint32(b[4:], g.Peers)
	m := AddressMember(netip.AddrFrom16(b))
	m.Protocol, m.Port = g.Protocol, g.Port
	return m
}

// Grant returns the grant of a member that Grant.Member made.
func (m Member) Grant() Grant {
	b := m.Prefix.Addr().As16()
	return Grant{List: binary.BigEndian.Uint32(b[:]), Peers: binary.BigEndian.Uint32(b[4:]), Protocol: m.Protocol, Port: m.Port}
}
