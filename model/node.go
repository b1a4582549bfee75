package model

import (
	"cmp"
	"net"
	"net/netip"
)

// Node is a node of the cluster as forwarding sees it.
type Node struct {
	Name string `json:"name"`
	// Addresses are the node's own (InternalIP) addresses, at most one a
	// family, IPv4 first.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// PodCIDRs are the masked prefixes of the node's pods, at most one a
	// family, IPv4 first.
	PodCIDRs []netip.Prefix `json:"podCIDRs,omitempty"`
	// PublicKey is the key of the annotation PublicKeyAnnotation, or the zero PublicKey.
	PublicKey PublicKey `json:"publicKey,omitzero"`
}

// Address returns the node's address of a family, or the zero Addr.
func (n *Node) Address(f Family) netip.Addr {
	for _, a := range n.Addresses {
		if FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// Outer returns the node's address in the outer headers of tunnels and of WireGuard, or the zero Addr: the IPv4
// address, or the IPv6 address of a node without one.
func (n *Node) Outer() netip.Addr {
	for _, f := range Families() {
		if a := n.Address(f); a.IsValid() {
			return a.Unmap()
		}
	}
	return netip.Addr{}
}

// OuterOf returns the peer's Outer, or the zero Addr if this node's is of the other family: then neither node sends to
// the other one.
func (n *Node) OuterOf(peer *Node) netip.Addr {
	own, its := n.Outer(), peer.Outer()
	if own.IsValid() && FamilyOf(own) != FamilyOf(its) {
		return netip.Addr{}
	}
	return its
}

// PodCIDR returns the node's pod prefix of a family, or the zero Prefix.
func (n *Node) PodCIDR(f Family) netip.Prefix {
	for _, p := range n.PodCIDRs {
		if FamilyOf(p.Addr()) == f {
			return p
		}
	}
	return netip.Prefix{}
}

// Gateway returns the address of the node's gateway port in a family: the
// first host address of its pod prefix, or the zero Addr.
func (n *Node) Gateway(f Family) netip.Addr {
	if p := n.PodCIDR(f); p.IsValid() {
		return p.Addr().Next()
	}
	return netip.Addr{}
}

// PodInterfacePrefix begins the name of the host side of every pod's veth
// pair, and of nothing else on the node.
const PodInterfacePrefix = "fx-"

// GatewayPort and TunnelPort are the bridge's ports to the host and to the peers.
const (
	GatewayPort = "flx-gw0"
	TunnelPort  = "flx-tun0"
)

// WireGuardDevice is the host's interface for encrypted packets between nodes.
const WireGuardDevice = "flx-wg0"

// Attachment is the interface of a local pod, as the CNI attached it. It is
// kept by the bridge itself (OVSDB external_ids), so it survives the agent.
type Attachment struct {
	Pod PodID
	// Sandbox is the container id of the pod's sandbox, PodInterface the name of
	// the interface inside: a pod that is made anew under its old name has
	// another sandbox.
	Sandbox, PodInterface string
	// NetNS is the path of the pod's network namespace when it was attached, empty
	// if that was not recorded.
	NetNS string
	// Interface is the name of the host side of the veth pair; OFPort its
	// OpenFlow port number.
	Interface string
	OFPort    uint32
	// Bridge is the bridge of another CNI plugin that the interface is a port of, empty without one.
	Bridge string
	// MAC is that of the pod's own interface.
	MAC net.HardwareAddr
	// Addresses are the pod's addresses, sorted.
	Addresses []netip.Addr
}

// Entrance is the interface by which packets of the pod come in where another CNI plugin owns it.
func (a *Attachment) Entrance() string { return cmp.Or(a.Bridge, a.Interface) }
