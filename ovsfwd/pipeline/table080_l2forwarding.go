package pipeline

// Table 80, L2 forwarding: the output port by destination MAC. Packets for a local pod go on to ingress
// policy, the rest to the commit; when the host has judged already, all go to the output.
//
//	table=80,priority=200,dl_dst=aa:bb:cc:dd:ee:ff actions=set_field:TUNNEL->reg1,set_field:0x10000/0x10000->reg0,goto_table:105    (steer: 110)
//	table=80,priority=200,dl_dst=GWMAC actions=set_field:GATEWAY->reg1,set_field:0x10000/0x10000->reg0,goto_table:105               (steer: 110)
//	table=80,priority=200,dl_dst=MAC actions=set_field:POD->reg1,set_field:0x10000/0x10000->reg0,goto_table:90                      (steer: 110)
//	table=80,priority=0 actions=goto_table:105                                                                                      (steer: 110)
//
// While the admin tier judges ingress here, pods go to 85 in the place of 90.

import (
	"net"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func l2ForwardingBase(n Node) []openflow.Flow {
	return []openflow.Flow{
		toPort(VirtualMAC(), n.TunnelPort, elsewhere(n)),
		toPort(n.GatewayMAC, n.GatewayPort, elsewhere(n)),
		{Table: TableL2Forwarding, Priority: priorityDefault, Match: openflow.Any(), Actions: jump(elsewhere(n))},
	}
}

func l2ForwardingEndpoint(n Node, a *model.Attachment) []openflow.Flow {
	next := TableIngress
	switch {
	case n.Mode == Steer:
		next = TableOutput
	case n.AdminIngress:
		next = TableAdminIngress
	}
	return []openflow.Flow{toPort(a.MAC, a.OFPort, next)}
}

// elsewhere is where packets go on that are for no pod of this node.
func elsewhere(n Node) uint8 {
	if n.Mode == Steer {
		return TableOutput
	}
	return TableCommit
}

func toPort(mac net.HardwareAddr, port uint32, next uint8) openflow.Flow {
	return openflow.Flow{
		Table: TableL2Forwarding, Priority: priorityNormal, Match: openflow.Any().MAC(openflow.EthDst, mac),
		Actions: slices.Concat(setOutput(port), jump(next)),
	}
}
