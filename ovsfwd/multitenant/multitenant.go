// Package multitenant renders the pipeline of OpenShift SDN's multitenant mode, as pure functions: each pod has the number of its
// tenant, and a packet reaches a pod only if both ends have one number or either end is global. Table numbers and
// registers are as in the reference (scenarios OSH-*). They mean other things than in ovsfwd/pipeline.
//
//	pod ----> 0 --> 20 sender, number --> 21 --+                +--> 70 pods of this node ---+--> 80 numbers --> port of reg2
//	tunnel -> 0 --> 10 peers ------------------+--> 30 route ---+--> 60 Services ------------+
//	host ---> 0 --> 25 number of the pod ------+     |    |     +--> 40 ARP for these pods --+
//	          0 -------- (the host itself) ----+     |    |     +--> 50 ARP, 90 IP: the tunnel
//	                                                 |    +--------> 100 --> 101 --> the host, to the outside
//	                                                 +-------------> the gateway's own address
//
// Registers: reg0 number of the sender, reg1 number of the receiver, reg2 output port, reg3 set if the sender is checked.
// Tunnel packets have the sender's number in tun_id. The host and global tenants have number 0.
//
// Rules for every packet:
//
//   - There is no connection tracking. An answer passes because the numbers are equal in both directions.
//   - The host has number 0: it reaches all pods, and all pods reach it.
//   - A peer is trusted for the numbers of its pods, and for no source address that is not in its pod prefix. Only its gateway and its global pods
//     have number 0: a node with another pipeline sends all packets with it.
//   - The host translates connections to Services: table 60 compares the numbers of client and Service, and sends the packet to
//     the host. A packet that comes back with the pod's address gets the pod's number again (table 25). One that the host
//     masquerades has number 0: then only table 60 compares numbers, whatever endpoint the Service has. Answers
//     of endpoints go straight to the client, so connections through Services need a host that masquerades them. The host also
//     has to drop what it translates to a node's tunnel port.
//   - A NodePort is open to all tenants, as to the outside.
//   - A pod without a known number has no flow: no packet leaves it or reaches it.
//   - Tables 30 and 70 set the destination's MAC address, so a pod may send everything to its gateway, as package cni has it, or ask for
//     other pods (ARP). No table decrements the time to live, and none learns.
//
// IPv4 only: other packets than those of IPv4 and ARP are dropped. There are no NetworkPolicies and no policy for the outside.
//
// Flows that the reference does not print are of three kinds: ARP and the default flows, as OpenShift SDN has them; the number by the
// pod's address (table 25); the MAC addresses (30, 70); and guards: a pod sends with its address and its MAC address only (0, 20), and neither
// tunnel packets to nodes nor redirects (21); peers send from their pod prefix to this node's pods only, and with number 0 from known addresses only (10); the host sends with no pod
// address of another node (0); ARP takes part in isolation (40). TestReference lists them with reasons.
//
// The agent uses this package with pipelineVariant: openshift (managers.MultitenantManager), and `felixctl bench packets` measures what packets
// cost without connection tracking. It is tested by comparison with the reference's flows and by packets of pods on two real switches.
package multitenant

import (
	"cmp"
	"net"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Node is this node. All addresses and prefixes are of IPv4.
type Node struct {
	GatewayPort, TunnelPort uint32
	// Gateway is the gateway port's address, inside PodPrefix, and GatewayMAC its MAC address.
	Gateway    netip.Addr
	GatewayMAC net.HardwareAddr
	// Addresses are the addresses of this node at which it takes tunnel packets.
	Addresses []netip.Addr
	// PodPrefix has the addresses of this node's pods, ClusterPrefix of all nodes' pods.
	PodPrefix, ClusterPrefix netip.Prefix
	// ServicePrefixes have the addresses of Services.
	ServicePrefixes []netip.Prefix
}

// The flows' owner and version in their cookies: those of the other pipeline are never taken for these.
const (
	Owner   uint16 = 0xf11b
	Version uint8  = 1
)

// MaxNumber is the greatest number of a tenant: a VXLAN's identifier has 24 bits.
const MaxNumber = 1<<24 - 1

// Tenant says with whom a pod or a Service exchanges packets. The zero Tenant is not known: nothing has flows by it.
type Tenant struct {
	// Number is shared by all that reach each other; 1 to MaxNumber, or zero if Global is set.
	Number uint32
	// Global is set if all tenants reach it, and it reaches all.
	Global bool
}

func (t Tenant) known() bool { return t.Global == (t.Number == 0) && t.Number <= MaxNumber }

// Service is a Service with an address of ServicePrefixes.
type Service struct {
	Address netip.Addr
	Ports   []ServicePort
}

// ServicePort is a port of a Service: TCP, UDP or SCTP.
type ServicePort struct {
	Protocol model.Protocol
	Port     uint16
}

// Base renders the flows that depend on nothing but the node itself.
func Base(n Node) []openflow.Flow {
	return slices.Concat(
		dispatchBase(n), peersBase(), sendersBase(n), hostBase(), routes(n), arpBase(),
		servicesBase(), podsBase(), numbersBase(), tunnelBase(), outside(n),
	)
}

// Endpoint renders the flows of a pod. Without a port, a MAC address, an IPv4 address or a known tenant there are none.
func Endpoint(a *model.Attachment, t Tenant) []openflow.Flow {
	i := slices.IndexFunc(a.Addresses, func(a netip.Addr) bool { return model.FamilyOf(a) == model.IPv4 })
	if a.OFPort == 0 || len(a.MAC) != 6 || i < 0 || !t.known() {
		return nil
	}
	p := pod{a.OFPort, a.MAC, a.Addresses[i].Unmap(), t.Number}
	return slices.Concat(dispatchPod(p), sendersPod(p), hostPod(p), arpPod(p), podsPod(p))
}

// Ends renders the flows that keep pods from the tunnel ends of another node.
func Ends(p *model.Node) []openflow.Flow {
	return ends(append(slices.Clone(p.Addresses), p.Gateway(model.IPv4)))
}

// Peer renders the flows towards and from another node but for its Ends, whose pods with these addresses are global. A node without an IPv4 address and an IPv4
// pod prefix has none.
func Peer(n Node, p *model.Node, global ...netip.Addr) []openflow.Flow {
	outer, prefix := p.Outer(), p.PodCIDR(model.IPv4)
	if !outer.Is4() || !prefix.IsValid() {
		return nil
	}
	return slices.Concat(
		peersPeer(n, outer, prefix, append([]netip.Addr{p.Gateway(model.IPv4)}, global...)), arpPeer(n, outer, prefix), tunnelPeer(n, outer, prefix),
	)
}

// ServiceFlows renders the flows of a Service of a tenant. If the tenant is not known there are none.
func ServiceFlows(n Node, s Service, t Tenant) []openflow.Flow {
	if !t.known() || !s.Address.Is4() {
		return nil
	}
	return servicesService(n, s, t.Number)
}

// Tenants renders the flow that lets packets pass inside each of the tenants, once for each number.
func Tenants(tenants ...Tenant) []openflow.Flow {
	sorted := slices.SortedFunc(slices.Values(tenants), func(a, b Tenant) int { return cmp.Compare(a.Number, b.Number) })
	var flows []openflow.Flow
	for _, t := range slices.Compact(sorted) {
		if t.known() && !t.Global {
			flows = append(flows, numbersTenant(t.Number))
		}
	}
	return flows
}
