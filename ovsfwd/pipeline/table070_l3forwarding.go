package pipeline

// Table 70, L3 forwarding: packets for a peer's pods, or the peer itself, go into the tunnel.
//
//	table=70,priority=200,ip,nw_dst=PEER'S PODS actions=set_field:GWMAC->eth_src,set_field:aa:bb:cc:dd:ee:ff->eth_dst,
//	    set_field:TUNNEL->reg1,set_field:0x10000/0x10000->reg0,set_field:PEER->tun_dst,goto_table:72     (and ipv6, as all here; tun_ipv6_dst
//	    for the IPv6 address of a peer)
//	table=70,priority=199,ip,nw_dst=PEER actions=the same
//	table=70,priority=0 actions=goto_table:80
//
// In the full pipeline it decides by the address of every packet of a pod, and from the tunnel:
//
//	table=70,priority=206,ct_state=-new+est,tcp,tcp_flags=+syn-ack actions=ct_clear,resubmit(,70)
//	table=70,priority=205,ct_state=-new,ct_mark=0x20/0x20,ct_label=ALLOWED/ALLOWED,ip,reg0=0/0x1 actions=set_field:GWMAC->eth_dst,goto_table:80
//	table=70,priority=200,ip,reg0=0x80000/0x80000,nw_dst=IP actions=set_field:GWMAC->eth_src,set_field:MAC->eth_dst,goto_table:72
//	table=70,priority=200,ip,reg0=0x80000/0x80000,nw_dst=OWN actions=set_field:GWMAC->eth_dst,goto_table:80
//	table=70,priority=195,ip,reg0=0x2/0xffff,dl_dst=MAC,nw_dst=IP actions=goto_table:80
//	table=70,priority=194,ip,reg0=0x2/0xffff,nw_dst=IP actions=set_field:GWMAC->eth_src,set_field:MAC->eth_dst,goto_table:80
//	table=70,priority=193,ip,reg0=0x2/0xffff,nw_dst=PODS actions=drop
//	table=70,priority=190,ip,reg0=0x2/0xffff actions=goto_table:71     (100 for IPv4, if table 5 says which packets leave by the switch)
//	table=70,priority=150,ip,reg0=0x80000/0x80000 actions=drop
//
// The first takes the state again from a segment that asks for a connection (see table 31): an egress rule
// that commits has given it back. The second is for answers of connections that the gateway port began, from
// a pod or the tunnel, to any address: the host has to undo its translation. The reference forgets this for
// answers from the tunnel and for those to a peer. The connection has to be allowed: with the mark alone, a
// packet that only has the ports of one would leave by the gateway port, and be allowed there, before the
// destination's policy has judged it.
//
// IP and MAC are those of a local pod, PODS this node's pod prefix, OWN its own addresses. PEER stands below
// these: another node's object may claim one, as that of this node under an earlier name, or of a dead one
// with a virtual address that this node has now. The reference believes the MAC address that a pod writes.
// Then a pod could have a packet judged for one address and delivered to another pod. And a packet for a
// local pod that the gateway port's MAC address sends through the host would come back established, before
// the ingress policy of its pod.
//
// Pods send packets for each other to the gateway's MAC address. Flow 194 sets the MAC addresses and does not decrement the hop limit.
// Pods that an earlier version attached may send to the other pod's MAC address (195).

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func l3ForwardingBase() []openflow.Flow {
	return []openflow.Flow{{
		Table: TableL3Forwarding, Priority: priorityDefault, Match: openflow.Any(), Actions: jump(TableL2Forwarding),
	}}
}

func l3ForwardingPeer(n Node, p *model.Node, tunnelled []netip.Prefix) []openflow.Flow {
	var flows []openflow.Flow
	outer := p.Outer()
	for _, prefix := range tunnelled {
		priority := priorityNormal
		if prefix.IsSingleIP() {
			priority = priorityPeerAddress
		}
		flows = append(flows, openflow.Flow{
			Table: TableL3Forwarding, Priority: priority, Match: to(prefix),
			Actions: slices.Concat(
				[]openflow.Action{
					openflow.SetMAC(openflow.EthSrc, n.GatewayMAC),
					openflow.SetMAC(openflow.EthDst, VirtualMAC()),
				},
				setOutput(n.TunnelPort),
				[]openflow.Action{
					openflow.SetAddr(openflow.TunnelDestination(outer), outer),
					openflow.GotoTable(TableTTL),
				},
			),
		})
	}
	return flows
}

const (
	priorityAsksAgain     uint16 = 206
	priorityBack          uint16 = 205
	priorityPeerAddress   uint16 = 199
	priorityLocalSwitched uint16 = 195
	priorityLocalLed      uint16 = 194
	priorityUnknown       uint16 = 150
	priorityOutside       uint16 = 100
)

// l3ForwardingFull makes the flows for packets that are neither for a local pod nor for a peer.
func l3ForwardingFull(n Node) []openflow.Flow {
	var flows []openflow.Flow
	add := func(priority uint16, m openflow.Match, actions ...openflow.Action) {
		flows = append(flows, openflow.Flow{Table: TableL3Forwarding, Priority: priority, Match: m, Actions: actions})
	}
	toGateway := openflow.SetMAC(openflow.EthDst, n.GatewayMAC)
	for _, a := range n.Own() {
		add(priorityNormal, to(single(a)).Bits(openflow.Reg0, macRewrite, macRewrite),
			toGateway, openflow.GotoTable(TableL2Forwarding))
	}
	for _, p := range n.PodCIDRs {
		add(priorityNotOutside, to(p).Bits(openflow.Reg0, sourcePod, sourceMask))
	}
	for i, ip := range ipFamilies() {
		add(priorityAsksAgain, asks(ip).CTState(openflow.CTEst, openflow.CTNew), openflow.CTClear(), openflow.Resubmit(TableL3Forwarding))
		// Neither source that is not the gateway has the lowest bit.
		answer := ip.CTState(0, openflow.CTNew).CTMark(GatewayMark, GatewayMark).CTLabel(AllowedLabel(), AllowedLabel())
		add(priorityBack, answer.Bits(openflow.Reg0, 0, sourceGW), toGateway, openflow.GotoTable(TableL2Forwarding))
		add(priorityUnknown, ip.Bits(openflow.Reg0, macRewrite, macRewrite))
		outside := priorityLow
		if i == 0 && n.SNAT != nil { // IPv4
			outside = priorityOutside
		}
		add(outside, ip.Bits(openflow.Reg0, sourcePod, sourceMask), openflow.GotoTable(TableOutside))
	}
	return flows
}

func l3ForwardingEndpoint(n Node, a *model.Attachment) []openflow.Flow {
	var flows []openflow.Flow
	lead := []openflow.Action{openflow.SetMAC(openflow.EthSrc, n.GatewayMAC), openflow.SetMAC(openflow.EthDst, a.MAC)}
	for _, addr := range a.Addresses {
		m := to(single(addr))
		flows = append(flows,
			openflow.Flow{
				Table: TableL3Forwarding, Priority: priorityNormal,
				Match:   m.Bits(openflow.Reg0, macRewrite, macRewrite),
				Actions: append(lead[:2:2], openflow.GotoTable(TableTTL)),
			},
			openflow.Flow{
				Table: TableL3Forwarding, Priority: priorityLocalSwitched,
				Match:   m.Bits(openflow.Reg0, sourcePod, sourceMask).MAC(openflow.EthDst, a.MAC),
				Actions: jump(TableL2Forwarding),
			},
			openflow.Flow{
				Table: TableL3Forwarding, Priority: priorityLocalLed,
				Match:   m.Bits(openflow.Reg0, sourcePod, sourceMask),
				Actions: append(lead[:2:2], openflow.GotoTable(TableL2Forwarding)),
			},
		)
	}
	return flows
}
