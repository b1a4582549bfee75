package pipeline

// Table 10, spoofguard, Egresses: packets of pods to the outside whose source address another node has, and the answers.
// POD is a pod whose Egress has its address at PEER. The host leads its packets back to the bridge with the MAC address
// aa:bb:cc:dd:ee:fe, after policy.
//
//	table=10,priority=206,ip,in_port=GATEWAY,dl_dst=aa:bb:cc:dd:ee:fe,nw_src=POD actions=set_field:GWMAC->eth_src,
//	    set_field:aa:bb:cc:dd:ee:ff->eth_dst,set_field:PEER->tun_dst,output:TUNNEL                    (and ipv6, as all here)
//	table=10,priority=205,dl_dst=aa:bb:cc:dd:ee:fe actions=drop
//	table=10,priority=195,ip,in_port=TUNNEL,nw_src=CLUSTER actions=drop
//	table=10,priority=190,ip,tun_src=PEER,in_port=TUNNEL,nw_dst=POD actions=set_field:GWMAC->eth_dst,output:GATEWAY
//
// An answer has a source outside the cluster, which the tunnel guard believes of nobody. So it goes to the host, and nowhere
// else: the host passes it only if it belongs to a connection that left by that way (rules.Egress). CLUSTER are the pod
// prefixes and addresses of all nodes: packets from there have to pass the flows of the tunnel guard, which stand above.
//
// Packets of either kind do not pass tables 30 to 110, where they would begin or allow connections of the full pipeline.
//
// Table 70, in the full pipeline, at the node with the address. There POD is a pod of a peer:
//
//	table=70,priority=152,ip,reg0=0x80000/0x80000,nw_src=POD actions=set_field:GWMAC->eth_dst,goto_table:80
//
// The steering pipeline sends all packets from the tunnel to the host.

import (
	"net"
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// AwayMAC is the MAC address of the host's next hop for packets whose source address another node has.
func AwayMAC() net.HardwareAddr {
	return net.HardwareAddr{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xfe}
}

const (
	priorityAway        uint16 = 206
	priorityAwayUnknown uint16 = 205
	priorityForged      uint16 = 195
	priorityServed      uint16 = 152
)

// EgressBase renders the flows that all Egresses share, for the nodes of the cluster.
func EgressBase(n Node, nodes []*model.Node) []openflow.Flow {
	flows := []openflow.Flow{{Table: TableSpoofGuard, Priority: priorityAwayUnknown, Match: openflow.Any().MAC(openflow.EthDst, AwayMAC())}}
	seen := map[netip.Prefix]bool{}
	for _, other := range nodes {
		for _, p := range owned(other) {
			if p = p.Masked(); !seen[p] {
				seen[p] = true
				flows = append(flows, openflow.Flow{Table: TableSpoofGuard, Priority: priorityForged, Match: from(p).InPort(n.TunnelPort)})
			}
		}
	}
	return flows
}

// EgressPeer renders the flows for pods of this node whose source address the peer has, and for pods of the peer whose
// source address this node has.
func EgressPeer(n Node, p *model.Node, away, served []netip.Addr) []openflow.Flow {
	outer := p.Outer()
	if !outer.IsValid() {
		return nil
	}
	var flows []openflow.Flow
	for _, pod := range away {
		flows = append(flows,
			openflow.Flow{
				Table: TableSpoofGuard, Priority: priorityAway,
				Match: from(single(pod)).InPort(n.GatewayPort).MAC(openflow.EthDst, AwayMAC()),
				Actions: []openflow.Action{
					openflow.SetMAC(openflow.EthSrc, n.GatewayMAC), openflow.SetMAC(openflow.EthDst, VirtualMAC()),
					openflow.SetAddr(openflow.TunnelDestination(outer), outer), openflow.Output(n.TunnelPort),
				},
			},
			openflow.Flow{
				Table: TableSpoofGuard, Priority: priorityLow,
				Match:   to(single(pod)).InPort(n.TunnelPort).TunnelSource(outer),
				Actions: []openflow.Action{openflow.SetMAC(openflow.EthDst, n.GatewayMAC), openflow.Output(n.GatewayPort)},
			})
	}
	if n.Mode == Steer {
		return flows
	}
	for _, pod := range served {
		flows = append(flows, openflow.Flow{
			Table: TableL3Forwarding, Priority: priorityServed, Match: from(single(pod)).Bits(openflow.Reg0, macRewrite, macRewrite),
			Actions: []openflow.Action{openflow.SetMAC(openflow.EthDst, n.GatewayMAC), openflow.GotoTable(TableL2Forwarding)},
		})
	}
	return flows
}
