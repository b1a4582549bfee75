package multitenant

// Table 10: packets of the tunnel. The outer source is a node's address, and the inner addresses are those of pods there and here.
//
//	table=10,priority=120,ip,reg3=0/0x1,tun_src=NODE,nw_src=ITS PODS,nw_dst=PODS actions=set_field:0x1/0x1->reg3,resubmit(,10)
//	table=10,priority=120,arp,reg3=0/0x1,tun_src=NODE,arp_spa=ITS PODS,arp_tpa=PODS actions=(the same)
//	table=10,priority=140,ip,reg3=0/0x1,reg0=0,tun_src=NODE,nw_src=GLOBAL,nw_dst=PODS actions=(the same)    its gateway, and its pods with number 0
//	table=10,priority=140,arp,reg3=0/0x1,reg0=0,tun_src=NODE,arp_spa=GLOBAL,arp_tpa=PODS actions=(the same)
//	table=10,priority=130,reg3=0/0x1,reg0=0 actions=drop             a node with the other pipeline sends no numbers
//	table=10,priority=110,reg3=0/0x1 actions=drop
//	table=10,priority=100,tun_src=NODE actions=goto_table:30       *
//	table=10,priority=0 actions=drop

import (
	"math"
	"net/netip"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func peersBase() []openflow.Flow {
	return []openflow.Flow{
		flow(tablePeers, priorityNoNumber, openflow.Any().Bits(checked, 0, bitChecked).Bits(sender, 0, math.MaxUint32)),
		unchecked(tablePeers), drop(tablePeers),
	}
}

func peersPeer(n Node, outer netip.Addr, pods netip.Prefix, global []netip.Addr) []openflow.Flow {
	flows := []openflow.Flow{
		check(tablePeers, from(pods).Prefix(openflow.IPv4Dst, n.PodPrefix).TunnelSource(outer)),
		check(tablePeers, asks(n.PodPrefix).Prefix(openflow.ARPSpa, pods).TunnelSource(outer)),
		flow(tablePeers, 100, openflow.Any().TunnelSource(outer), jump(tableRoutes)),
	}
	for _, a := range global {
		for _, m := range []openflow.Match{
			from(single(a)).Prefix(openflow.IPv4Dst, n.PodPrefix), asks(n.PodPrefix).Prefix(openflow.ARPSpa, single(a)),
		} {
			f := check(tablePeers, m.TunnelSource(outer).Bits(sender, 0, math.MaxUint32))
			f.Priority = priorityGlobal
			flows = append(flows, f)
		}
	}
	return flows
}
