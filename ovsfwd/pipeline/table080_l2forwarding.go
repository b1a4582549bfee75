package pipeline

// Table 80, L2 forwarding: the output port by destination MAC. The reference
// goes on to its policy and conntrack tables; the host has judged already.
//
//	table=80,priority=200,dl_dst=aa:bb:cc:dd:ee:ff actions=set_field:TUNNEL->reg1,set_field:0x10000/0x10000->reg0,goto_table:110
//	table=80,priority=200,dl_dst=GWMAC actions=set_field:GATEWAY->reg1,set_field:0x10000/0x10000->reg0,goto_table:110
//	table=80,priority=200,dl_dst=MAC actions=set_field:POD->reg1,set_field:0x10000/0x10000->reg0,goto_table:110
//	table=80,priority=0 actions=goto_table:110

import (
	"net"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func l2ForwardingBase(n Node) []openflow.Flow {
	return []openflow.Flow{
		toPort(VirtualMAC(), n.TunnelPort),
		toPort(n.GatewayMAC, n.GatewayPort),
		{Table: TableL2Forwarding, Priority: priorityDefault, Match: openflow.Any(), Actions: jump(TableOutput)},
	}
}

func l2ForwardingEndpoint(a *model.Attachment) []openflow.Flow {
	return []openflow.Flow{toPort(a.MAC, a.OFPort)}
}

func toPort(mac net.HardwareAddr, port uint32) openflow.Flow {
	return openflow.Flow{
		Table: TableL2Forwarding, Priority: priorityNormal, Match: openflow.Any().MAC(openflow.EthDst, mac),
		Actions: slices.Concat(setOutput(port), jump(TableOutput)),
	}
}
