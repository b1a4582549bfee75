package model

import (
	"fmt"
	"net"
	"net/netip"
)

// TrafficMode says how packets between pods of different nodes travel. The zero value is Encap.
type TrafficMode uint8

const (
	// Encap tunnels all of them.
	Encap TrafficMode = iota
	// NoEncap tunnels none. Nodes of one subnet route to each other, and the node network routes the rest.
	NoEncap
	// Hybrid routes between nodes of one subnet, and tunnels the rest.
	Hybrid
	// WireGuard encrypts all of them, whatever the subnet. It is the value of the setting encryption, not of
	// trafficMode.
	WireGuard
	// PolicyOnly leaves interfaces, addresses and routes of pods to another CNI plugin: there is no bridge.
	PolicyOnly
)

// String returns the value of the setting trafficMode, or of encryption.
func (m TrafficMode) String() string {
	switch m {
	case Encap:
		return "encap"
	case NoEncap:
		return "noEncap"
	case Hybrid:
		return "hybrid"
	case WireGuard:
		return "wireguard"
	case PolicyOnly:
		return "networkPolicyOnly"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// MarshalText writes the mode's name.
func (m TrafficMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a mode's name.
func (m *TrafficMode) UnmarshalText(b []byte) error {
	return named(m, b, "traffic mode", Encap, NoEncap, Hybrid, WireGuard, PolicyOnly)
}

// Way is the way of one family's packets between this node and a peer, in both directions.
type Way uint8

const (
	// ByTunnel is a tunnel to the peer's Outer.
	ByTunnel Way = iota
	// ByPeer is a route with the peer's address as the next hop.
	ByPeer
	// ByNetwork is the way of this node's packets to the peer's address: routers know the pods' prefixes.
	ByNetwork
	// NoWay says that one of the two nodes has no address of the family, and there is no tunnel; or, in the
	// mode WireGuard, no public key, or ends of different families (Node.OuterOf).
	NoWay
	// ByWireGuard is the WireGuard device, encrypted to the peer's Outer.
	ByWireGuard
)

// Way decides how packets of a family travel between this node and a peer. Subnets are the addresses of this
// node with the length of their prefixes. Two nodes are in one subnet if the prefix of this node's
// address contains the peer's. Both ends find the same if their prefixes have the same length.
func (m TrafficMode) Way(self, peer *Node, subnets []netip.Prefix, f Family) Way {
	own, its := self.Address(f).Unmap(), peer.Address(f).Unmap()
	switch m {
	case Encap:
		return ByTunnel
	case WireGuard:
		if peer.PublicKey.IsZero() || self.PublicKey.IsZero() || !self.Outer().IsValid() || !self.OuterOf(peer).IsValid() {
			return NoWay
		}
		return ByWireGuard
	}
	for _, s := range subnets {
		if its.IsValid() && s.Addr() == own && s.Contains(its) {
			return ByPeer
		}
	}
	switch {
	case m != NoEncap:
		return ByTunnel
	case own.IsValid() && its.IsValid():
		return ByNetwork
	}
	return NoWay
}

// MAC is a MAC address as a comparable value.
type MAC [6]byte

// String returns the usual notation.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText writes the usual notation.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the usual notation.
func (m *MAC) UnmarshalText(b []byte) error {
	a, err := net.ParseMAC(string(b))
	if err != nil || len(a) != len(m) {
		return fmt.Errorf("%q is no MAC address of 6 bytes", b)
	}
	*m = MAC(a)
	return nil
}

// Hop is the neighbour by which this node's packets to a peer's address, or to Outside, leave.
type Hop struct {
	// Address is the peer's own.
	Address netip.Addr `json:"address"`
	// Interface is the interface that the packets leave by, InterfaceMAC its MAC address.
	Interface    string `json:"interface"`
	InterfaceMAC MAC    `json:"interfaceMAC"`
	// Neighbour is the neighbour's address, MAC its MAC address: those of the peer, or of a router.
	Neighbour netip.Addr `json:"neighbour"`
	MAC       MAC        `json:"mac"`
}
