package pipeline

// Table 0, classifier: says where a packet came from.
//
//	table=0,priority=200,in_port=GATEWAY actions=set_field:0x1/0xffff->reg0,goto_table:10
//	table=0,priority=200,tun_src=PEER,in_port=TUNNEL actions=set_field:0/0xffff->reg0,set_field:0x80000/0x80000->reg0,goto_table:10
//	table=0,priority=190,in_port=POD actions=set_field:0x2/0xffff->reg0,goto_table:10
//	table=0,priority=0 actions=drop
//
// The reference takes packets from any tunnel source straight to table 30.
// Ours must come from a node of the cluster and pass the spoofguard.

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func classifierBase(n Node) []openflow.Flow {
	return []openflow.Flow{
		{
			Table: TableClassifier, Priority: priorityNormal, Match: openflow.Any().InPort(n.GatewayPort),
			Actions: []openflow.Action{
				openflow.SetBits(openflow.Reg0, sourceGW, sourceMask),
				openflow.GotoTable(TableSpoofGuard),
			},
		},
		drop(TableClassifier),
	}
}

func classifierPeer(n Node, p *model.Node) []openflow.Flow {
	return []openflow.Flow{{
		Table: TableClassifier, Priority: priorityNormal,
		Match: openflow.Any().InPort(n.TunnelPort).TunnelSource(outer(p)),
		Actions: []openflow.Action{
			openflow.SetBits(openflow.Reg0, sourceTunnel, sourceMask),
			openflow.SetBits(openflow.Reg0, macRewrite, macRewrite),
			openflow.GotoTable(TableSpoofGuard),
		},
	}}
}

func classifierEndpoint(a *model.Attachment) []openflow.Flow {
	return []openflow.Flow{{
		Table: TableClassifier, Priority: priorityLow, Match: openflow.Any().InPort(a.OFPort),
		Actions: []openflow.Action{
			openflow.SetBits(openflow.Reg0, sourcePod, sourceMask),
			openflow.GotoTable(TableSpoofGuard),
		},
	}}
}
