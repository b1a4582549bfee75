// Package pipeline renders the flows that forward packets, as pure functions:
// one file per OpenFlow table. Table numbers and registers are those of the
// reference pipeline. Node.Mode says which of two pipelines it is, or which step between them.
//
// Steer, under the netfilter backends: every IP packet of a pod or from the tunnel goes to the gateway port.
// Only packets that come in by the gateway port, judged by the host's FORWARD hook, reach a pod or the
// tunnel. Node.Offload makes an exception, see below.
//
//	pod / tunnel -> 0 classifier -> 10 spoofguard -> 30 steer -> 110 output = gateway port
//	                                     | ARP, ND
//	                                     +-> 20 ARP responder; from the gateway port NORMAL
//	gateway port -> 0 -> 10 -> 30 -> 70 L3 forwarding -> 72 TTL -> 80 L2 forwarding -> 110 output
//
// With Node.Offload, table 30 first looks up the connections of packets to pods. Packets of
// established connections that netfilter has allowed skip the host:
//
//	pod / tunnel, to a pod -> 30 -> 33 conntrack of the host -> 34 established, allowed -> 70 -> 72 -> 80 -> 110
//	                                 | other                     | other
//	                                 +---------------------------+-> 110 output = gateway port
//
// Full, under the openflow backend: the switch judges, in the tables marked with *. This package does not
// render their clauses, actions and drops. Table 71 is not used: packets to the outside pass the host, which knows the
// addresses of Egresses, and table 10 has the flows for those that another node gives their address (EgressPeer).
//
//	any port -> 0 classifier -> 10 spoofguard -> 30 conntrack -> 31 state of the connection
//	                                                | invalid: dropped
//	  +---------------------------------------------+
//	  v
//	40 Services, own node, hairpin -> *45 admin tier -> *50 NetworkPolicy -> *60 isolation, baseline -> *61 counters
//	  | Service, own node                 | allowed, or established                                        |
//	  |                                   +--------------------> 61, 70                                    v
//	  |   72 TTL <- routed ------------------------------------------------------------------ 70 L3 forwarding
//	  v     v
//	  |   80 L2 forwarding -> *85 admin tier -> *90 NetworkPolicy -> *100 isolation, baseline -> *101 counters
//	  |     | to gateway, tunnel    | own node                                                       |
//	  +-----+-----------------------+-----------------------> 105 commit -> 110 allowed; output <----+
//
// BeginsInHost and BeginsInSwitch are Full but for packets of connections that the switch does not know: these go as in Steer. They are steps
// of a change between the two pipelines (table031_unknown.go).
//
// Rules for every packet there:
//
//   - A connection is *allowed* (bit 64 of its label) when a packet of its
//     originator has passed both ends' policy and leaves: table 110. A committed
//     connection is not allowed yet: tables 45 and 50 commit before the destination's
//     policy has judged. Each packet of a connection that is known but not allowed is
//     judged for itself (31, 85, 90), and an answer or an ICMP error never allows the
//     connection. Without the flows of policy only packets of allowed connections leave.
//   - Packets of allowed connections, in both directions, and ICMP errors about
//     them pass by the established flows of 45, 50, 85 and 90. A TCP segment that asks
//     for a connection is always judged (31, 70).
//   - Address and port identify the other end, never the MAC
//     address that a pod writes. Table 70 sends packets for a local pod to its
//     port, those for a peer into the tunnel, and all others of a pod to
//     the gateway. So no packet is judged for one destination and delivered to
//     another, and none comes back from the host as if it were established.
//   - Answers of connections that the gateway port began (mark 0x20) go back to
//     it, since the host has to undo its address translation.
//   - The switch does not judge packets between a pod and its own node. Table 40 passes
//     those to the node: the host may translate the destination, and judges then
//     (rules.Input). Tables 85 and 90 pass those from the node.
//   - A packet to a Service goes to the host (40) and is judged when it comes back with
//     the endpoint's address. With Node.Services, it gets the endpoint's address here where that can be
//     (41), and is judged then. A pod's packet to its own Service comes back from the address
//     Hairpin, which stands for the pod.
//   - Packets to an unused address of this node's pod prefix are dropped (70), as
//     are link-local IPv6 destinations (40) and tunnel packets for other nodes.
//   - A routed packet loses one hop in each router: 72, or the host. Between pods of this node the bridge is no router: it
//     changes the MAC addresses, and no hop is lost.
//   - The userspace datapath does not track SCTP: table 32 knows its associations.
//
// Registers: reg0[0..15] source (0 tunnel, 1 gateway, 2 pod, 4 uplink, 5 host by the uplink), reg0[16] output
// port known, reg0[17] source to be translated, reg0[18] and reg4[18] handed
// on by a policy before all tiers (ingress, egress), reg4[22] and reg4[23] judged by the host and begins here (table 31, only while the
// enforcement point changes), reg0[19] came by the tunnel with the virtual MAC, reg0[20] denied
// by a rule, reg0[21] a pod to itself through a Service, reg0[22] must not allow
// its connection, reg0[23..25] associations of SCTP, reg0[26] there is policy,
// reg0[27] skips the host, reg0[28..31] connections with another source port (table 35), reg4[19..21] to a Service, with an endpoint, answer of one (table 41), reg1 output port, reg2 the address that a pod asks for, reg3 the rule that denies, reg5 and reg6 the rules that allow
// egress and ingress, reg7[0..15] and reg7[16..31] sets that the port is in (egress, ingress), reg8, reg9 and reg10 a slot, the endpoint of a client and how long it keeps it (table 41). Connections: mark 0x20 begun by the gateway port, 0x40 translated, 0x80 with another
// source port; label[0..31] and label[32..63] the rules that allowed ingress and egress, label[64] allowed, label[65] with
// another source port, label[66] through a Service.
//
// The package does no I/O and knows no policy. It is tested by golden text, by
// comparison with the reference flows, and by packets and traces in a real
// ovs-vswitchd.
//
// # Facts about single tables
//
//   - 5, 111: only with Node.SNAT (table005_snat.go). The bridge with the uplink has flows too (physical.go).
//   - 0: a tunnel packet is accepted only from a peer's outer source, and goes to 10,
//     not to 30 as in the reference: the tunnel guard compares the inner source with the
//     outer one, which the reference does not do.
//   - 10: address and MAC are pinned for IPv4, ARP, IPv6 and neighbour discovery.
//   - 20: peer gateways answer with aa:bb:cc:dd:ee:ff. Pods get the gateway's MAC address for every address of their prefix,
//     and hear no other pod; ARP and neighbour discovery of the gateway port are NORMAL.
//   - 30: connections are in zone 65520. On the userspace datapath it gets the kernel's
//     timeouts where they differ.
//   - 31: each pod has a meter that limits its new connections. Packets of connections
//     that are not allowed, and SYNs, lose their state and are judged for themselves.
//   - 32: SCTP on the userspace datapath, whose conntrack leaves out its ports. The
//     reference has no such table.
//   - 33, 34: only with Node.Offload. The connections are those of the host, in zone 0.
//   - 35: a pod that uses one source port for a Service and for its endpoint directly.
//   - 41, 42, 43: only with Node.Services. Translation has a zone of its own, 65523.
//   - 72: no decrement for packets from the gateway, since the host did it.
//   - 105: also commits connections that are asked for from the ports of old ones.
//   - 110: no new connection leaves while flows of policy are missing, for any reason, or
//     not all in force yet (FlowTable.Last).
//
// Both pipelines have the same owner and the same tables, so one bundle leads from each step to the next.
//
// # Differences to the reference
//
// A committed connection is not allowed yet. The reference commits a connection when egress has judged
// it, and lets established packets pass: a peer that answers by the same ports would
// open a connection that ingress denies. Here the label has a bit of its own
// (TestGuards). The own node's traffic differs from kube-proxy's masqueraded traffic by
// the address: the host's table keeps the client's source on its way to the gateway
// port, so only the node itself has one of the node's addresses. There is no separate port for
// local traffic and no pkt_mark (marks do not cross a tap device). For the same reason the reference's
// table 71 for Egresses (scenario ANT-EGRESS) is not here: the host chooses the address by that of the pod, and a packet for
// another node comes back from the host with a MAC address of its own (EgressPeer). TestReference
// lists the omitted rows of the reference and the flows beyond it, with reasons; for
// policy flows TestReferenceFlows does (ovsfwd/policyflows).
package pipeline

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Base renders the flows that depend on nothing but the node itself.
func Base(n Node) []openflow.Flow {
	flows := slices.Concat(
		classifierBase(n),
		spoofGuardBase(n),
		arpResponderBase(n),
		l3ForwardingBase(),
		ttlBase(),
		l2ForwardingBase(n),
		outputBase(),
	)
	if n.Mode == Steer {
		return slices.Concat(flows, steerBase(n), offloadBase(n))
	}
	return slices.Concat(flows,
		conntrackBase(),
		conntrackStateBase(n),
		movedBase(n),
		dnatBase(n),
		servicesBase(n),
		egressBase(n),
		l3ForwardingFull(n),
		outsideFull(n),
		adminIngressBase(n),
		ingressBase(n),
		commitBase(),
		outputFull(),
		snatBase(n),
		associationsBase(n),
		unknownBase(n),
	)
}

// LeadsToPolicy reports whether forwarding has flows in a table only where the switch judges: in each mode but Steer.
func LeadsToPolicy(table uint8) bool { return table == TableAdminEgress }

// Endpoint renders the flows of a pod attached to the bridge. Before vswitchd has given a port number, there
// are none.
func Endpoint(n Node, a *model.Attachment) []openflow.Flow {
	if a.OFPort == 0 || len(a.MAC) != 6 {
		return nil
	}
	flows := slices.Concat(classifierEndpoint(a), spoofGuardEndpoint(a), arpResponderEndpoint(a), l2ForwardingEndpoint(n, a))
	if n.Mode == Steer {
		return append(flows, offloadEndpoint(n, a)...)
	}
	return slices.Concat(flows, movedEndpoint(a), dnatEndpoint(a), l3ForwardingEndpoint(n, a), associationsEndpoint(n, a))
}

// Peer renders the flows towards and from another node. A peer without an address has none. Packets of the routed families do not take the
// tunnel in either direction, they take the gateway port as those from and to the outside do: the flows of these
// families only keep pods from sending tunnel packets to the peer.
func Peer(n Node, p *model.Node, routed ...model.Family) []openflow.Flow {
	if !p.Outer().IsValid() {
		return nil
	}
	guard := tunnelEnds(ends(p))
	tunnelled := *p
	tunnelled.PodCIDRs = slices.DeleteFunc(slices.Clone(p.PodCIDRs), func(c netip.Prefix) bool { return slices.Contains(routed, model.FamilyOf(c.Addr())) })
	prefixes := slices.DeleteFunc(owned(p), func(c netip.Prefix) bool { return slices.Contains(routed, model.FamilyOf(c.Addr())) })
	if len(prefixes) == 0 {
		return guard
	}
	return slices.Concat(classifierPeer(n, p), spoofGuardPeer(n, p, prefixes), guard, arpResponderPeer(&tunnelled), l3ForwardingPeer(n, p, prefixes), offloadPeer(n, &tunnelled))
}
