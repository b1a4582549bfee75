package pipeline

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Mode is one of the two pipelines, or a step between them: a change of the enforcement point passes all four, one after the other.
type Mode uint8

const (
	// Steer hands packets to the host, where netfilter judges them: every packet, or with Node.Offload
	// every packet but those of established connections that netfilter has allowed.
	Steer Mode = iota
	// BeginsInHost is Full for connections that the switch knows. All other packets are the host's (table 31).
	BeginsInHost
	// BeginsInSwitch is BeginsInHost, but TCP connections begin in the switch.
	BeginsInSwitch
	// Full judges packets in the switch.
	Full
)

// String returns "steer", "begins in the host", "begins in the switch" or "full".
func (m Mode) String() string {
	switch m {
	case Steer:
		return "steer"
	case BeginsInHost:
		return "begins in the host"
	case BeginsInSwitch:
		return "begins in the switch"
	case Full:
		return "full"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Node is this node as its pipeline sees it. All modes use the ports, the MAC, the
// gateway addresses and the pod prefixes. Only Steer uses Offload, only the others use the other fields.
type Node struct {
	GatewayPort, TunnelPort uint32
	GatewayMAC              net.HardwareAddr
	// Gateways are the gateway port's addresses, at most one a family.
	Gateways []netip.Addr
	Mode     Mode
	// Userspace says that the datapath is netdev.
	Userspace bool
	// PodCIDRs are the prefixes of this node's pods.
	PodCIDRs []netip.Prefix
	// ServiceCIDRs are the prefixes of Services, which the host translates.
	ServiceCIDRs []netip.Prefix
	// Services says that the bridge leads connections of pods to Services to their endpoints (ServiceCIDRs, Service). It is tried on the
	// userspace datapath only.
	Services bool
	// HostAddresses are all addresses of this node, sorted.
	HostAddresses []netip.Addr
	// AdminIngress says that a policy of the admin tier judges ingress here.
	AdminIngress bool
	// OrderedEgress says that a policy of the admin or baseline tier judges egress
	// here.
	OrderedEgress bool
	// Offload has the steering pipeline switch packets of established connections that
	// netfilter has allowed. It needs the kernel's datapath, whose connection tracking is
	// that of the host.
	Offload bool
	// SNAT has the full pipeline translate the sources of pods' packets to the outside; nil leaves that
	// to the host.
	SNAT *SNAT
}

// Switches reports whether the pipeline switches packets of established connections past
// the host.
func (n Node) Switches() bool { return n.Offload && n.Mode == Steer }

// Own are the addresses of this node: those of the gateway port, its link-local
// one among them, then all others.
func (n Node) Own() []netip.Addr {
	own := slices.Clone(n.Gateways)
	if slices.ContainsFunc(own, func(a netip.Addr) bool { return !isIPv4(a) }) {
		own = append(own, linkLocal(n.GatewayMAC))
	}
	for _, a := range n.HostAddresses {
		if a = a.Unmap(); !slices.Contains(own, a) {
			own = append(own, a)
		}
	}
	return own
}

// linkLocal is the EUI-64 link-local address of a MAC (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0xfe, 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}
