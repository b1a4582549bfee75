package multitenant

// Table 10: packets of the tunnel. The outer source is a node's address, and the inner addresses are those of pods there and here.
//
//	table=10,priority=120,ip,reg3=0/0x1,tun_src=NODE,nw_src=ITS PODS,nw_dst=PODS actions=set_field:0x1/0x1->reg3,resubmit(,10)
//	table=10,priority=120,arp,reg3=0/0x1,tun_src=NODE,arp_spa=ITS PODS,arp_tpa=PODS actions=(the same)
//	table=10,priority=110,reg3=0/0x1 actions=drop
//	table=10,priority=100,tun_src=NODE actions=goto_table:30       *
//	table=10,priority=0 actions=drop

import (
	"net/netip"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func peersBase() []openflow.Flow { return []openflow.Flow{unchecked(tablePeers), drop(tablePeers)} }

func peersPeer(n Node, outer netip.Addr, pods netip.Prefix) []openflow.Flow {
	return []openflow.Flow{
		check(tablePeers, from(pods).Prefix(openflow.IPv4Dst, n.PodPrefix).TunnelSource(outer)),
		check(tablePeers, asks(n.PodPrefix).Prefix(openflow.ARPSpa, pods).TunnelSource(outer)),
		flow(tablePeers, 100, openflow.Any().TunnelSource(outer), jump(tableRoutes)),
	}
}
