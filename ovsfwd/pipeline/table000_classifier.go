package pipeline

// Table 0, classifier: says where a packet came from.
//
//	table=0,priority=200,in_port=GATEWAY actions=set_field:0x1/0xffff->reg0,goto_table:10
//	table=0,priority=200,tun_src=PEER,in_port=TUNNEL actions=set_field:0/0xffff->reg0,set_field:0x80000/0x80000->reg0,goto_table:10
//	table=0,priority=192,arp,in_port=POD,dl_src=MAC actions=set_field:0x2/0xffff->reg0,goto_table:10
//	table=0,priority=191,arp,in_port=POD actions=drop
//	table=0,priority=190,in_port=POD actions=set_field:0x2/0xffff->reg0,goto_table:10
//	table=0,priority=1,in_port=TUNNEL actions=drop                                    no node's outer source
//	table=0,priority=0 actions=drop
//
// The reference takes packets from any tunnel source straight to table 30.
// Ours must come from a node of the cluster and pass the spoofguard. Nor does the
// reference pin the Ethernet source of a pod's ARP, by which bridges learn.

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
		strangers(n, TableClassifier),
		drop(TableClassifier),
	}
}

func classifierPeer(n Node, p *model.Node) []openflow.Flow {
	return []openflow.Flow{{
		Table: TableClassifier, Priority: priorityNormal,
		Match: openflow.Any().InPort(n.TunnelPort).TunnelSource(p.Outer()),
		Actions: []openflow.Action{
			openflow.SetBits(openflow.Reg0, sourceTunnel, sourceMask),
			openflow.SetBits(openflow.Reg0, macRewrite, macRewrite),
			openflow.GotoTable(TableSpoofGuard),
		},
	}}
}

// The Ethernet source of ARP is looked at above the flow for everything.
const (
	priorityARPForged uint16 = priorityLow + 1
	priorityARPPinned uint16 = priorityLow + 2
)

func classifierEndpoint(a *model.Attachment) []openflow.Flow {
	fromPod := []openflow.Action{
		openflow.SetBits(openflow.Reg0, sourcePod, sourceMask),
		openflow.GotoTable(TableSpoofGuard),
	}
	arp := openflow.ARP().InPort(a.OFPort)
	return []openflow.Flow{
		{Table: TableClassifier, Priority: priorityARPPinned, Match: arp.MAC(openflow.EthSrc, a.MAC), Actions: fromPod},
		{Table: TableClassifier, Priority: priorityARPForged, Match: arp},
		{Table: TableClassifier, Priority: priorityLow, Match: openflow.Any().InPort(a.OFPort), Actions: fromPod},
	}
}
