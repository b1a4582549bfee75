package multitenant

// Tables 20 and 21: packets of pods get the number of their tenant. NODE is an address of a node. Table 25: so do packets
// of pods that the host has translated and sends on.
//
//	table=20,priority=100,ip,in_port=POD,nw_src=IP actions=set_field:NUMBER->reg0,goto_table:21        *
//	table=20,priority=100,arp,in_port=POD,arp_spa=IP,arp_sha=MAC actions=(the same)
//	table=20,priority=0 actions=drop
//	table=21,priority=200,udp,nw_dst=NODE,tp_dst=4789 actions=drop    (and 6081, GRE: the host would masquerade it as a packet of this node)
//	table=21,priority=200,icmp,icmp_type=5 actions=drop               redirects
//	table=21,priority=0 actions=goto_table:30                                                         *
//	table=25,priority=100,ip,nw_src=IP actions=set_field:NUMBER->reg0,goto_table:30
//	table=25,priority=0 actions=drop

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// redirect is the ICMP type of a redirect (RFC 792).
const redirect uint8 = 5

func sendersBase(n Node) []openflow.Flow {
	return append(ends(append([]netip.Addr{n.Gateway}, n.Addresses...)),
		drop(tableSenders),
		flow(tableFromPods, 200, openflow.ICMPv4(redirect)),
		flow(tableFromPods, 0, openflow.Any(), jump(tableRoutes)),
	)
}

// ends drops packets of pods to the tunnel ends of a node with these addresses.
func ends(addresses []netip.Addr) []openflow.Flow {
	var flows []openflow.Flow
	for _, a := range addresses {
		if !a.IsValid() || model.FamilyOf(a) != model.IPv4 {
			continue
		}
		node := to(single(a.Unmap()))
		for _, port := range model.TunnelPorts() {
			flows = append(flows, flow(tableFromPods, 200, node.Protocol(model.UDP).Port(openflow.UDPDst, port, 0xffff)))
		}
		flows = append(flows, flow(tableFromPods, 200, node.Protocol(model.GRE)))
	}
	return flows
}

func sendersPod(p pod) []openflow.Flow {
	number := openflow.SetRegister(sender, p.number)
	return []openflow.Flow{
		flow(tableSenders, 100, from(single(p.address)).InPort(p.port), number, jump(tableFromPods)),
		flow(tableSenders, 100, openflow.ARP().InPort(p.port).Addr(openflow.ARPSpa, p.address).MAC(openflow.ARPSha, p.mac), number, jump(tableFromPods)),
	}
}

func hostBase() []openflow.Flow { return []openflow.Flow{drop(tableFromHost)} }

func hostPod(p pod) []openflow.Flow {
	return []openflow.Flow{flow(tableFromHost, 100, from(single(p.address)), openflow.SetRegister(sender, p.number), jump(tableRoutes))}
}
