// Package pipeline renders the flows of the minimal forwarding pipeline, the
// one under the netfilter backends, as pure functions: one file per OpenFlow
// table. Table numbers and registers are those of the reference pipeline.
//
//	pod / tunnel -> 0 classifier -> 10 spoofguard -> 30 steer -> 110 output = gateway port
//	                                     | ARP, ND
//	                                     +-> 20 ARP responder, else NORMAL
//	gateway port -> 0 -> 10 -> 30 -> 70 L3 forwarding -> 72 TTL -> 80 L2 forwarding -> 110 output
//
// Every IP packet of a pod or from the tunnel goes to the gateway port, and
// only what comes in by the gateway port, when the host's FORWARD hook has
// judged it, reaches a pod or the tunnel. Table 71 is kept for SNAT.
//
// Registers: reg0[0..15] source (0 tunnel, 1 gateway, 2 pod), reg0[16] output
// port known, reg0[19] came by the tunnel with the virtual MAC, reg1 output
// port.
//
// The package does no I/O and knows no policy. It is tested by golden text, by
// comparison with the reference flows, and by packets and traces in a real
// ovs-vswitchd.
package pipeline

import (
	"net"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Version goes into every cookie. It changes when the meaning of a table or
// register does, so that flows of both releases never mix.
const Version = 1

// The tables.
const (
	TableClassifier   uint8 = 0
	TableSpoofGuard   uint8 = 10
	TableARPResponder uint8 = 20
	TableSteer        uint8 = 30
	TableL3Forwarding uint8 = 70
	TableTTL          uint8 = 72
	TableL2Forwarding uint8 = 80
	TableOutput       uint8 = 110
)

// The bits of reg0.
const (
	sourceMask   uint32 = 0xffff
	sourceTunnel uint32 = 0
	sourceGW     uint32 = 1
	sourcePod    uint32 = 2
	outputKnown  uint32 = 1 << 16
	macRewrite   uint32 = 1 << 19
)

const (
	priorityDefault uint16 = 0
	priorityLow     uint16 = 190
	priorityNormal  uint16 = 200
	priorityHigh    uint16 = 210
	// Neighbour discovery: what is allowed stands above what is dropped.
	priorityND        uint16 = 220
	priorityMalformed uint16 = 230
)

// VirtualMAC is the MAC address of every peer's gateway.
func VirtualMAC() net.HardwareAddr {
	return net.HardwareAddr{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
}

// Node is this node as its pipeline sees it.
type Node struct {
	GatewayPort, TunnelPort uint32
	GatewayMAC              net.HardwareAddr
	// Gateways are the gateway port's addresses, at most one a family.
	Gateways []netip.Addr
}

// Base renders the flows that depend on nothing but the node itself.
func Base(n Node) []openflow.Flow {
	return slices.Concat(
		classifierBase(n),
		spoofGuardBase(n),
		arpResponderBase(),
		steerBase(n),
		l3ForwardingBase(),
		ttlBase(),
		l2ForwardingBase(n),
		outputBase(),
	)
}

// Endpoint renders the flows of a pod attached to the bridge. Without a port
// number, which vswitchd gives, there are none.
func Endpoint(_ Node, a *model.Attachment) []openflow.Flow {
	if a.OFPort == 0 || len(a.MAC) != 6 {
		return nil
	}
	return slices.Concat(classifierEndpoint(a), spoofGuardEndpoint(a), l2ForwardingEndpoint(a))
}

// Peer renders the flows towards and from another node. The tunnel's outer
// header is IPv4, so a peer without an IPv4 address has none.
func Peer(n Node, p *model.Node) []openflow.Flow {
	if !p.Address(model.IPv4).IsValid() {
		return nil
	}
	return slices.Concat(classifierPeer(n, p), spoofGuardPeer(n, p), arpResponderPeer(p), l3ForwardingPeer(n, p))
}

// outer is the address of a peer's end of the tunnel.
func outer(p *model.Node) netip.Addr { return p.Address(model.IPv4).Unmap() }

func isIPv4(a netip.Addr) bool { return model.FamilyOf(a) == model.IPv4 }

// ipFamilies are the matches for all packets of each family, IPv4 first.
func ipFamilies() []openflow.Match { return []openflow.Match{openflow.IPv4(), openflow.IPv6()} }

// from matches IP packets whose source is in a prefix, to those whose
// destination is.
func from(p netip.Prefix) openflow.Match {
	if isIPv4(p.Addr()) {
		return openflow.IPv4().Prefix(openflow.IPv4Src, p)
	}
	return openflow.IPv6().Prefix(openflow.IPv6Src, p)
}

func to(p netip.Prefix) openflow.Match {
	if isIPv4(p.Addr()) {
		return openflow.IPv4().Prefix(openflow.IPv4Dst, p)
	}
	return openflow.IPv6().Prefix(openflow.IPv6Dst, p)
}

func single(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen())
}

// owned are the prefixes whose addresses a peer sends from and is reached at:
// its pods and its own addresses.
func owned(p *model.Node) []netip.Prefix {
	prefixes := slices.Clone(p.PodCIDRs)
	for _, a := range p.Addresses {
		prefixes = append(prefixes, single(a))
	}
	return prefixes
}

// drop makes a default flow that drops what no other flow of a table matched.
func drop(table uint8) openflow.Flow {
	return openflow.Flow{Table: table, Priority: priorityDefault, Match: openflow.Any()}
}

func jump(table uint8) []openflow.Action { return []openflow.Action{openflow.GotoTable(table)} }

func setOutput(port uint32) []openflow.Action {
	return []openflow.Action{
		openflow.SetRegister(openflow.Reg1, port),
		openflow.SetBits(openflow.Reg0, outputKnown, outputKnown),
	}
}
