package pipeline

// Table 30, conntrack: looks the packet's connection up.
//
//	table=30,priority=200,ip actions=ct(table=31,zone=65520)    (and ipv6)
//	table=30,priority=0 actions=drop

import "github.com/felixlike/felixlike/ovsfwd/openflow"

func conntrackBase() []openflow.Flow {
	flows := []openflow.Flow{drop(TableConntrack)}
	for _, m := range ipFamilies() {
		flows = append(flows, openflow.Flow{
			Table: TableConntrack, Priority: priorityNormal, Match: m,
			Actions: []openflow.Action{openflow.CT(openflow.CTSpec{Zone: Zone, Table: TableConntrackState})},
		})
	}
	return flows
}
