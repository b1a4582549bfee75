package pipeline

// Table 40: packets that the host handles before policy. Services go to the gateway port, where the host
// picks an endpoint; the packet comes back and is judged then. Packets to the pod's own node are judged by the host. A pod that
// reached itself through a Service gets its own address back as the source.
//
//	table=40,priority=210,ip,reg0=0x2/0xffff,nw_dst=OWN actions=set_field:GWMAC->eth_dst,goto_table:80
//	table=40,priority=210,ip,reg0=0x1/0xffff,nw_src=HAIRPIN,nw_dst=IP actions=set_field:IP->ip_src,set_field:0x200000/0x200000->reg0,goto_table:45
//	table=40,priority=205,ip,nw_src=HAIRPIN actions=drop
//	table=40,priority=205,ipv6,ipv6_dst=fe80::/10 actions=drop
//	table=40,priority=200,ip,nw_dst=SERVICES actions=set_field:GATEWAY->reg1,set_field:0x10000/0x10000->reg0,goto_table:105
//	table=40,priority=0 actions=goto_table:45
//
// OWN is every address of this node. The MAC address is set, or a pod could send
// to its node's address and another pod's MAC address past its egress policy.

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// priorityNowhere is for addresses that are no destinations.
const priorityNowhere uint16 = 205

func dnatBase(n Node) []openflow.Flow {
	flows := []openflow.Flow{
		{Table: TableDNAT, Priority: priorityDefault, Match: openflow.Any(), Actions: jump(TableAdminEgress)},
		{Table: TableDNAT, Priority: priorityNowhere, Match: to(netip.MustParsePrefix("fe80::/10"))},
	}
	for _, f := range model.Families() {
		flows = append(flows, openflow.Flow{Table: TableDNAT, Priority: priorityNowhere, Match: from(single(Hairpin(f)))})
	}
	for _, a := range n.Own() {
		flows = append(flows, openflow.Flow{
			Table: TableDNAT, Priority: priorityHigh, Match: to(single(a)).Bits(openflow.Reg0, sourcePod, sourceMask),
			Actions: []openflow.Action{openflow.SetMAC(openflow.EthDst, n.GatewayMAC), openflow.GotoTable(TableL2Forwarding)},
		})
	}
	for _, p := range n.ServiceCIDRs {
		flows = append(flows, openflow.Flow{
			Table: TableDNAT, Priority: priorityNormal, Match: to(p),
			Actions: slices.Concat(setOutput(n.GatewayPort), jump(TableCommit)),
		})
	}
	return flows
}

func dnatEndpoint(a *model.Attachment) []openflow.Flow {
	var flows []openflow.Flow
	for _, addr := range a.Addresses {
		addr = addr.Unmap()
		stand := Hairpin(model.FamilyOf(addr))
		flows = append(flows, openflow.Flow{
			Table: TableDNAT, Priority: priorityHigh,
			Match: to(single(addr)).Addr(sourceField(addr), stand).Bits(openflow.Reg0, sourceGW, sourceMask),
			Actions: []openflow.Action{
				openflow.SetAddr(sourceField(addr), addr),
				openflow.SetBits(openflow.Reg0, hairpin, hairpin),
				openflow.GotoTable(TableAdminEgress),
			},
		})
	}
	return flows
}

// sourceField is the field of the source address in the address's family.
func sourceField(a netip.Addr) openflow.Field {
	if isIPv4(a) {
		return openflow.IPv4Src
	}
	return openflow.IPv6Src
}
