package pipeline

// Table 10, spoofguard: a source address is believed only on its own port,
// and from the tunnel only if the outer source is the node that owns it.
//
//	table=10,priority=200,ip,in_port=GATEWAY actions=goto_table:30                    (and ipv6)
//	table=10,priority=200,arp,in_port=GATEWAY,arp_spa=GWIP,arp_sha=GWMAC actions=goto_table:20
//	table=10,priority=200,ip,in_port=POD,dl_src=MAC,nw_src=IP actions=goto_table:30   (and ipv6)
//	table=10,priority=200,arp,in_port=POD,arp_spa=IP,arp_sha=MAC actions=goto_table:20
//	table=10,priority=200,ip,tun_src=PEER,in_port=TUNNEL,nw_src=PEER'S actions=goto_table:30   (and ipv6)
//	table=10,priority=210,icmp,icmp_type=5 actions=drop                               redirect
//	table=10,priority=1,in_port=TUNNEL actions=drop                                   no source of the outer source's node
//	table=10,priority=0 actions=drop
//
// Neighbour discovery never reaches the host's FORWARD hook, so it is guarded
// here: see table010_neighbours.go. Encapsulated packets of pods to nodes are dropped:
// see table010_tunnelends.go.

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// redirectIPv4 is the ICMP type of a redirect (RFC 792).
const redirectIPv4 uint8 = 5

func spoofGuardBase(n Node) []openflow.Flow {
	flows := []openflow.Flow{
		strangers(n, TableSpoofGuard),
		drop(TableSpoofGuard),
		// Only routers send redirects (RFC 1122, section 3.2.2.2), and no node does to
		// its pods. Those of IPv6 are with the rest of neighbour discovery.
		{Table: TableSpoofGuard, Priority: priorityHigh, Match: openflow.ICMPv4(redirectIPv4)},
	}
	for _, m := range ipFamilies() {
		flows = append(flows, openflow.Flow{
			Table: TableSpoofGuard, Priority: priorityNormal, Match: m.InPort(n.GatewayPort), Actions: jump(TableConntrack),
		})
	}
	for _, gw := range n.Gateways {
		if isIPv4(gw) {
			flows = append(flows, openflow.Flow{
				Table: TableSpoofGuard, Priority: priorityNormal,
				Match:   openflow.ARP().InPort(n.GatewayPort).Addr(openflow.ARPSpa, gw.Unmap()).MAC(openflow.ARPSha, n.GatewayMAC),
				Actions: jump(TableARPResponder),
			})
		}
	}
	return slices.Concat(flows, tunnelEnds(n.Own()), neighboursBase(n))
}

// strangers drops what comes by the tunnel and no node's flow takes, as the default flow would, and counts it.
func strangers(n Node, table uint8) openflow.Flow {
	return openflow.Flow{Table: table, Priority: priorityStranger, Match: openflow.Any().InPort(n.TunnelPort)}
}

// IsStranger reports whether a flow of TableClassifier or TableSpoofGuard that drops is one that drops packets of the tunnel, by its priority: the outer source
// is no node's, or the inner source is not one of the node with the outer source.
func IsStranger(table uint8, priority uint16) bool {
	return priority == priorityStranger || table == TableSpoofGuard && priority == priorityForged
}

func spoofGuardEndpoint(a *model.Attachment) []openflow.Flow {
	var flows []openflow.Flow
	for _, addr := range a.Addresses {
		addr = addr.Unmap()
		flows = append(flows, openflow.Flow{
			Table: TableSpoofGuard, Priority: priorityNormal,
			Match:   from(single(addr)).InPort(a.OFPort).MAC(openflow.EthSrc, a.MAC),
			Actions: jump(TableConntrack),
		})
		if isIPv4(addr) {
			flows = append(flows, openflow.Flow{
				Table: TableSpoofGuard, Priority: priorityNormal,
				Match:   openflow.ARP().InPort(a.OFPort).Addr(openflow.ARPSpa, addr).MAC(openflow.ARPSha, a.MAC),
				Actions: jump(TableARPResponder),
			})
		}
	}
	return append(flows, neighboursEndpoint(a)...)
}

func spoofGuardPeer(n Node, p *model.Node, tunnelled []netip.Prefix) []openflow.Flow {
	var flows []openflow.Flow
	for _, prefix := range tunnelled {
		flows = append(flows, openflow.Flow{
			Table: TableSpoofGuard, Priority: priorityNormal,
			Match:   from(prefix).InPort(n.TunnelPort).TunnelSource(p.Outer()),
			Actions: jump(TableConntrack),
		})
	}
	return flows
}
