package pipeline

// Table 72, TTL: a routed packet loses one hop, unless the host has routed it
// and taken the hop already.
//
//	table=72,priority=210,ip,reg0=0x1/0xffff actions=goto_table:80    (and ipv6)
//	table=72,priority=200,ip actions=dec_ttl,goto_table:80            (and ipv6)
//	table=72,priority=0 actions=goto_table:80

import "github.com/felixlike/felixlike/ovsfwd/openflow"

func ttlBase() []openflow.Flow {
	flows := []openflow.Flow{{
		Table: TableTTL, Priority: priorityDefault, Match: openflow.Any(), Actions: jump(TableL2Forwarding),
	}}
	for _, m := range ipFamilies() {
		flows = append(flows,
			openflow.Flow{
				Table: TableTTL, Priority: priorityHigh,
				Match:   m.Bits(openflow.Reg0, sourceGW, sourceMask),
				Actions: jump(TableL2Forwarding),
			},
			openflow.Flow{
				Table: TableTTL, Priority: priorityNormal, Match: m,
				Actions: []openflow.Action{openflow.DecTTL(), openflow.GotoTable(TableL2Forwarding)},
			})
	}
	return flows
}
