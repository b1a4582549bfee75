package multitenant

// Table 30: by destination.
//
//	table=30,priority=400,ip,reg3=0/0x2,nw_dst=GWIP actions=set_field:GWMAC->eth_dst,set_field:0x2/0x2->reg3,resubmit(,30)
//	table=30,priority=300,ip,nw_dst=GWIP actions=output:GATEWAY           *
//	table=30,priority=300,arp,arp_tpa=GWIP actions=output:GATEWAY
//	table=30,priority=200,ip,nw_dst=PODS actions=goto_table:70            *
//	table=30,priority=200,arp,arp_tpa=PODS actions=goto_table:40
//	table=30,priority=100,ip,nw_dst=SERVICES actions=goto_table:60        *
//	table=30,priority=100,ip,nw_dst=CLUSTER actions=goto_table:90         *
//	table=30,priority=100,arp,arp_tpa=CLUSTER actions=goto_table:50
//	table=30,priority=0,ip actions=goto_table:100                         *
//	table=30,priority=0,arp actions=drop
//
// Tables 100 and 101: to the outside. The reference has policy for the outside there.
//
//	table=100,priority=0 actions=goto_table:101                           *
//	table=101,priority=0 actions=output:GATEWAY                           *

import (
	"net/netip"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func routes(n Node) []openflow.Flow {
	gateway, toHost := single(n.Gateway), openflow.Output(n.GatewayPort)
	flows := []openflow.Flow{
		address(tableRoutes, to(gateway), n.GatewayMAC),
		flow(tableRoutes, 300, to(gateway), toHost),
		flow(tableRoutes, 300, asks(gateway), toHost),
		flow(tableRoutes, 200, to(n.PodPrefix), jump(tablePods)),
		flow(tableRoutes, 200, asks(n.PodPrefix), jump(tableARPPods)),
		flow(tableRoutes, 100, to(n.ClusterPrefix), jump(tableTunnel)),
		flow(tableRoutes, 100, asks(n.ClusterPrefix), jump(tableARPPeers)),
		flow(tableRoutes, 0, openflow.IPv4(), jump(tableOutside)),
		flow(tableRoutes, 0, openflow.ARP()),
	}
	for _, p := range services(n) {
		flows = append(flows, flow(tableRoutes, 100, to(p), jump(tableServices)))
	}
	return flows
}

// services returns the IPv4 prefixes of Services.
func services(n Node) (all []netip.Prefix) {
	for _, p := range n.ServicePrefixes {
		if p.Addr().Is4() {
			all = append(all, p)
		}
	}
	return all
}

func outside(n Node) []openflow.Flow {
	return []openflow.Flow{
		flow(tableOutside, 0, openflow.Any(), jump(tableFirewall)),
		flow(tableFirewall, 0, openflow.Any(), openflow.Output(n.GatewayPort)),
	}
}
