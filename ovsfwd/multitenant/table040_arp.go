package multitenant

// Tables 40 and 50: ARP between pods, on this node and through the tunnel. OpenShift SDN hands ARP to any pod; here table 80
// compares the numbers too.
//
//	table=40,priority=100,arp,arp_tpa=IP actions=set_field:NUMBER->reg1,set_field:POD->reg2,goto_table:80
//	table=40,priority=0 actions=drop
//	table=50,priority=100,arp,arp_tpa=ITS PODS actions=move:NXM_NX_REG0[]->NXM_NX_TUN_ID[0..31],set_field:NODE->tun_dst,output:TUNNEL
//	table=50,priority=0 actions=drop

import (
	"net/netip"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func arpBase() []openflow.Flow { return []openflow.Flow{drop(tableARPPods), drop(tableARPPeers)} }

func arpPod(p pod) []openflow.Flow {
	return []openflow.Flow{flow(tableARPPods, 100, asks(single(p.address)), deliver(p.number, p.port)...)}
}

func arpPeer(n Node, outer netip.Addr, pods netip.Prefix) []openflow.Flow {
	return []openflow.Flow{flow(tableARPPeers, 100, asks(pods), encapsulate(n, outer)...)}
}
