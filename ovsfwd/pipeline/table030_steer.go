package pipeline

// Table 30, steer: packets that the host has judged go on, all others go to the host. In the steering
// pipeline it replaces conntrack.
//
//	table=30,priority=210,ip,reg0=0x1/0xffff actions=goto_table:70                       (and ipv6)
//	table=30,priority=200,ip actions=set_field:GWMAC->eth_dst,set_field:GATEWAY->reg1,
//	    set_field:0x10000/0x10000->reg0,goto_table:110                                   (and ipv6)
//	table=30,priority=0 actions=drop
//	table=31,priority=210,ip,reg0=0x1/0xffff actions=goto_table:70                       (and ipv6)
//	table=31,priority=200,ip,reg0=0/0x5 actions=set_field:GWMAC->eth_dst,set_field:GATEWAY->reg1,
//	    set_field:0x10000/0x10000->reg0,goto_table:110                                   (and ipv6)
//
//	table=35,priority=220,ip,reg0=0x80010000/0x80010000 actions=output:NXM_NX_REG1[]     (and ipv6)
//	table=35,priority=0 actions=resubmit(,30)
//
// In tables 31 and 35, the switch goes on with packets whose connection it has looked up by former flows, those of the full pipeline.
//
// Offload adds flows for packets to pods: see table033_offload.go.

import (
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func steerBase(n Node) []openflow.Flow {
	flows := append(movedOn(), drop(TableConntrack))
	for _, m := range ipFamilies() {
		judged, other := m.Bits(openflow.Reg0, sourceGW, sourceMask), notFromHost(m)
		flows = append(flows,
			openflow.Flow{Table: TableConntrack, Priority: priorityHigh, Match: judged, Actions: jump(TableL3Forwarding)},
			openflow.Flow{Table: TableConntrack, Priority: priorityNormal, Match: m, Actions: toHost(n)},
			openflow.Flow{Table: TableConntrackState, Priority: priorityHigh, Match: judged, Actions: jump(TableL3Forwarding)},
			openflow.Flow{Table: TableConntrackState, Priority: priorityNormal, Match: other, Actions: toHost(n)})
	}
	return flows
}
