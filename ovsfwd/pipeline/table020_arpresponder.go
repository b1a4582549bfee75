package pipeline

// Table 20, ARP responder: answers for the gateways of peers with the virtual MAC. ARP and neighbour discovery of the gateway
// port are switched as on any bridge, those of pods are not: no pod's message comes to another pod. PODS are this node's pod
// prefixes, GWLL is the link-local address of the gateway port. A pod has no other neighbour than the gateway. The answers
// below are for pods that have the whole prefix on link, because an earlier version attached them.
//
//	table=20,priority=200,arp,arp_tpa=PEERGW,arp_op=1 actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],
//	    set_field:aa:bb:cc:dd:ee:ff->eth_src,set_field:2->arp_op,move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],
//	    set_field:aa:bb:cc:dd:ee:ff->arp_sha,move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],set_field:PEERGW->arp_spa,IN_PORT
//	table=20,priority=196,arp,in_port=POD,arp_tpa=IP,arp_op=1 actions=drop                                its own address
//	table=20,priority=195,arp,reg0=0x2/0xffff,arp_tpa=PODS,arp_op=1 actions=the same with GWMAC, and move:NXM_OF_ARP_TPA[]->NXM_NX_REG2[],
//	    move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],move:NXM_NX_REG2[]->NXM_OF_ARP_SPA[]
//	table=20,priority=194,arp,reg0=0x2/0xffff actions=output:GATEWAY
//	table=20,priority=196,icmp6,reg0=0x2/0xffff,ipv6_src=::,icmp_type=135 actions=drop                    duplicate address detection
//	table=20,priority=195,icmp6,reg0=0x2/0xffff,icmp_type=135,icmp_code=0,nd_target=PODS actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],
//	    set_field:GWMAC->eth_src,set_field:GWMAC->nd_sll,move:NXM_NX_IPV6_SRC[]->NXM_NX_IPV6_DST[],
//	    move:NXM_NX_ND_TARGET[]->NXM_NX_IPV6_SRC[],move:NXM_NX_IPV6_DST[]->NXM_NX_ND_TARGET[],IN_PORT    (and GWLL)
//	table=20,priority=194,icmp6,reg0=0x2/0xffff,ipv6_dst=GWIP,icmp_type=136 actions=output:GATEWAY        (and GWLL)
//	table=20,priority=193,icmp6,reg0=0x2/0xffff actions=drop
//	table=20,priority=190,arp actions=NORMAL
//	table=20,priority=190,icmp6,ipv6_dst=fe80::/10,icmp_type=135 actions=NORMAL    (and 136; ff02::/16, and own pod prefixes)
//	table=20,priority=0 actions=drop
//
// A solicitation is answered by one in the opposite direction: whoever receives it learns the sender's MAC address (RFC 4861,
// section 7.2.3). An advertisement cannot be made of a solicitation on the kernel's datapath, which does not set the type of an option. No
// pod has the MAC address GWMAC: table 10.
//
// NORMAL floods to the tunnel port too. The port is flow based and no outer
// destination is set here, so nothing leaves by it. Neighbour discovery to destinations beyond the link would pass policy:
// the host is a router.

import (
	"net"
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Operations of ARP.
const (
	arpRequest uint16 = 1
	arpReply   uint16 = 2
)

// Priorities of the messages of pods, above those of the gateway port.
const (
	priorityPodsOther  uint16 = 193
	priorityPodsToHost uint16 = 194
	priorityPodsAsk    uint16 = 195
	priorityPodsOwn    uint16 = 196
)

func arpResponderBase(n Node) []openflow.Flow {
	matches := []openflow.Match{openflow.ARP()}
	for _, p := range onLink(n) {
		for _, t := range []uint8{neighbourSolicitation, neighbourAdvert} {
			matches = append(matches, openflow.ICMPv6(t).Prefix(openflow.IPv6Dst, p))
		}
	}
	flows := []openflow.Flow{drop(TableARPResponder)}
	for _, m := range matches {
		flows = append(flows, openflow.Flow{
			Table: TableARPResponder, Priority: priorityLow, Match: m, Actions: []openflow.Action{openflow.OutputNormal()},
		})
	}
	return append(flows, arpResponderPods(n)...)
}

// arpResponderPods makes the flows for ARP and neighbour discovery of pods.
func arpResponderPods(n Node) []openflow.Flow {
	var flows []openflow.Flow
	add := func(priority uint16, m openflow.Match, actions ...openflow.Action) {
		flows = append(flows, openflow.Flow{Table: TableARPResponder, Priority: priority, Match: m.Bits(openflow.Reg0, sourcePod, sourceMask), Actions: actions})
	}
	targets := []netip.Prefix{single(linkLocal(n.GatewayMAC))}
	for _, p := range n.PodCIDRs {
		if isIPv4(p.Addr()) {
			add(priorityPodsAsk, openflow.ARP().Prefix(openflow.ARPTpa, p).ARPOperation(arpRequest), answerARP(n.GatewayMAC,
				openflow.Copy(openflow.ARPTpa, openflow.Reg2), openflow.Copy(openflow.ARPSpa, openflow.ARPTpa), openflow.Copy(openflow.Reg2, openflow.ARPSpa))...)
		} else {
			targets = append(targets, p)
		}
	}
	add(priorityPodsToHost, openflow.ARP(), openflow.Output(n.GatewayPort))
	for _, p := range targets {
		add(priorityPodsAsk, openflow.NeighbourDiscovery(neighbourSolicitation).Prefix(openflow.NDTarget, p),
			openflow.Copy(openflow.EthSrc, openflow.EthDst), openflow.SetMAC(openflow.EthSrc, n.GatewayMAC), openflow.SetMAC(openflow.NDSll, n.GatewayMAC),
			openflow.Copy(openflow.IPv6Src, openflow.IPv6Dst), openflow.Copy(openflow.NDTarget, openflow.IPv6Src), openflow.Copy(openflow.IPv6Dst, openflow.NDTarget),
			openflow.OutputInPort())
	}
	add(priorityPodsOwn, openflow.ICMPv6(neighbourSolicitation).Addr(openflow.IPv6Src, netip.IPv6Unspecified()))
	for _, a := range gatewayTargets(n) {
		add(priorityPodsToHost, openflow.ICMPv6(neighbourAdvert).Addr(openflow.IPv6Dst, a), openflow.Output(n.GatewayPort))
	}
	add(priorityPodsOther, openflow.IPv6().Protocol(model.ICMPv6))
	return flows
}

// arpResponderEndpoint makes the flows for announcements of a pod's own addresses: an answer would claim them.
func arpResponderEndpoint(a *model.Attachment) []openflow.Flow {
	var flows []openflow.Flow
	for _, addr := range a.Addresses {
		if isIPv4(addr) {
			flows = append(flows, openflow.Flow{
				Table: TableARPResponder, Priority: priorityPodsOwn,
				Match: openflow.ARP().InPort(a.OFPort).Addr(openflow.ARPTpa, addr.Unmap()).ARPOperation(arpRequest),
			})
		}
	}
	return flows
}

// onLink returns the IPv6 destinations of the bridge's link.
func onLink(n Node) []netip.Prefix {
	all := []netip.Prefix{netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff02::/16")}
	for _, p := range n.PodCIDRs {
		if !isIPv4(p.Addr()) {
			all = append(all, p)
		}
	}
	return all
}

func arpResponderPeer(p *model.Node) []openflow.Flow {
	gw := p.Gateway(model.IPv4)
	if !gw.IsValid() {
		return nil
	}
	return []openflow.Flow{{
		Table: TableARPResponder, Priority: priorityNormal,
		Match:   openflow.ARP().Addr(openflow.ARPTpa, gw).ARPOperation(arpRequest),
		Actions: answerARP(VirtualMAC(), openflow.Copy(openflow.ARPSpa, openflow.ARPTpa), openflow.SetAddr(openflow.ARPSpa, gw)),
	}}
}

// answerARP makes an answer of a request: the address that was asked for is at this MAC address. The given actions swap the
// protocol addresses.
func answerARP(at net.HardwareAddr, swap ...openflow.Action) []openflow.Action {
	actions := []openflow.Action{
		openflow.Copy(openflow.EthSrc, openflow.EthDst),
		openflow.SetMAC(openflow.EthSrc, at),
		openflow.SetARPOperation(arpReply),
		openflow.Copy(openflow.ARPSha, openflow.ARPTha),
		openflow.SetMAC(openflow.ARPSha, at),
	}
	return append(append(actions, swap...), openflow.OutputInPort())
}
