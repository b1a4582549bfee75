package pipeline

// Table 70, L3 forwarding: what the host routed to a peer, pods and node
// alike, goes into the tunnel to that peer. Only packets from the gateway port
// come here.
//
//	table=70,priority=200,ip,nw_dst=PEER'S actions=set_field:GWMAC->eth_src,set_field:aa:bb:cc:dd:ee:ff->eth_dst,
//	    set_field:TUNNEL->reg1,set_field:0x10000/0x10000->reg0,set_field:PEER->tun_dst,goto_table:72     (and ipv6)
//	table=70,priority=0 actions=goto_table:80

import (
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func l3ForwardingBase() []openflow.Flow {
	return []openflow.Flow{{
		Table: TableL3Forwarding, Priority: priorityDefault, Match: openflow.Any(), Actions: jump(TableL2Forwarding),
	}}
}

func l3ForwardingPeer(n Node, p *model.Node) []openflow.Flow {
	var flows []openflow.Flow
	for _, prefix := range owned(p) {
		flows = append(flows, openflow.Flow{
			Table: TableL3Forwarding, Priority: priorityNormal, Match: to(prefix),
			Actions: slices.Concat(
				[]openflow.Action{
					openflow.SetMAC(openflow.EthSrc, n.GatewayMAC),
					openflow.SetMAC(openflow.EthDst, VirtualMAC()),
				},
				setOutput(n.TunnelPort),
				[]openflow.Action{
					openflow.SetAddr(openflow.TunDst, outer(p)),
					openflow.GotoTable(TableTTL),
				},
			),
		})
	}
	return flows
}
