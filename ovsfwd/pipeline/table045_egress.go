package pipeline

// Tables 45 (admin tier), 50 (NetworkPolicy), 60 (isolation, baseline) and 61
// (counters), egress: what is there without any policy. Rules match the source
// address, so only packets of local pods meet any.
//
//	table=45,priority=64990,ct_state=-new+est,ip actions=goto_table:61    (and +rel; and ipv6, as all here)
//	table=45,priority=0 actions=goto_table:50
//	table=50,priority=210,ct_state=-new+est,ip actions=goto_table:70      (and +rel)
//	table=50,priority=0 actions=goto_table:60
//	table=60,priority=0 actions=goto_table:61
//	table=61,priority=0 actions=goto_table:70
//
// Table 31 has taken the state from packets of connections that are not allowed.
// +rel are ICMP errors about allowed ones.

import "github.com/felixlike/felixlike/ovsfwd/openflow"

// priorityAdminEstablished stands above all rules of the admin tier.
const priorityAdminEstablished uint16 = 64990

func egressBase() []openflow.Flow {
	flows := []openflow.Flow{
		next(TableAdminEgress, TableEgress),
		next(TableEgress, TableEgressDefault),
		next(TableEgressDefault, TableEgressMetrics),
		next(TableEgressMetrics, TableL3Forwarding),
	}
	flows = append(flows, established(TableAdminEgress, priorityAdminEstablished, TableEgressMetrics)...)
	return append(flows, established(TableEgress, priorityHigh, TableL3Forwarding)...)
}

// next makes a default flow that goes on in a later table.
func next(table, to uint8) openflow.Flow {
	return openflow.Flow{Table: table, Priority: priorityDefault, Match: openflow.Any(), Actions: jump(to)}
}

// established makes the flows by which packets of allowed connections, and
// errors about them, pass a table's rules.
func established(table uint8, priority uint16, to uint8) []openflow.Flow {
	var flows []openflow.Flow
	for _, ip := range ipFamilies() {
		for _, state := range []openflow.CTFlags{openflow.CTEst, openflow.CTRel} {
			flows = append(flows, openflow.Flow{
				Table: table, Priority: priority, Match: ip.CTState(state, openflow.CTNew), Actions: jump(to),
			})
		}
	}
	return flows
}
