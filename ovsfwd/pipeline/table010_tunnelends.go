package pipeline

// Table 10, spoofguard, tunnel ends: no pod sends encapsulated packets to a node. NODE
// is an address of this node, or of a peer that the tunnel reaches.
//
//	table=10,priority=215,udp,reg0=0x2/0xffff,nw_dst=NODE,tp_dst=4789 actions=drop      (and udp6, as all here)
//	table=10,priority=215,udp,reg0=0x2/0xffff,nw_dst=NODE,tp_dst=6081 actions=drop
//	table=10,priority=215,ip,reg0=0x2/0xffff,nw_dst=NODE,nw_proto=47 actions=drop
//
// These flows do not depend on the type of the tunnel: nodes have different types while
// it is changed. A pod may send such packets to addresses that belong to no node.
//
// Without these flows, a node would check only the outer header: the classifier (tun_src, tun_ipv6_src)
// and the tunnel port (local_ip) refuse packets that do not come from a node.
//
// These flows do not add ports to the match for packets to other addresses. Open vSwitch
// checks addresses before ports, and stops if no flow has the address.

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// priorityTunnelEnd is above the flows that let packets pass spoofguard. No other flow of
// the table has this priority.
const priorityTunnelEnd uint16 = 215

// IsTunnelEnd reports whether a flow of TableSpoofGuard that drops is of those above, by
// its priority.
func IsTunnelEnd(priority uint16) bool { return priority == priorityTunnelEnd }

// tunnelEnds drops packets of pods to the tunnel ends of a node with these addresses.
func tunnelEnds(addresses []netip.Addr) []openflow.Flow {
	var flows []openflow.Flow
	for _, a := range addresses {
		toNode := to(single(a)).Bits(openflow.Reg0, sourcePod, sourceMask)
		drop := func(m openflow.Match) {
			flows = append(flows, openflow.Flow{Table: TableSpoofGuard, Priority: priorityTunnelEnd, Match: m})
		}
		for _, port := range model.TunnelPorts() {
			drop(toNode.Protocol(model.UDP).Port(openflow.UDPDst, port, 0xffff))
		}
		drop(toNode.Protocol(model.GRE))
	}
	return flows
}

// ends are the addresses of a peer at which it takes packets: its own, and those of
// its gateway port.
func ends(p *model.Node) []netip.Addr {
	all := slices.Clone(p.Addresses)
	for _, f := range model.Families() {
		if g := p.Gateway(f); g.IsValid() {
			all = append(all, g)
		}
	}
	return all
}
