package pipeline

// Tables 45 (admin tier), 50 (NetworkPolicy), 60 (isolation, baseline) and 61 (counters), egress: the flows
// without any policy. Rules match the source address, so only packets of local pods meet any.
//
//	table=45,priority=64990,ct_state=-new+est,ip actions=goto_table:61    (and +rel; and ipv6, as all here)
//	table=45,priority=0 actions=goto_table:50
//	table=50,priority=210,ct_state=-new+est,ip actions=goto_table:70      (and +rel)
//	table=50,priority=0 actions=goto_table:60
//	table=60,priority=0 actions=goto_table:61
//	table=61,priority=65000,ct_state=+new+trk,ip,nw_src=PODS,reg5=0,nw_frag=later actions=drop
//	table=61,priority=0 actions=goto_table:70
//
// Table 31 has taken the state from packets of connections that are not allowed, and
// from those that ask for one.
// +rel are ICMP errors about allowed ones.
//
// The drop is there on the userspace datapath while a policy of an ordered tier
// judges egress. A rule with ports that allows holds the first fragment in its ct
// until the others come to one. These match no rule with ports, so they would come
// to one behind ingress policy, and take the first fragment past it. A NetworkPolicy
// isolates as well, which stops them.

import "github.com/felixlike/felixlike/ovsfwd/openflow"

const (
	// priorityAdminEstablished stands above all rules of the admin tier.
	priorityAdminEstablished uint16 = 64990
	// priorityFragments stands above all counters.
	priorityFragments uint16 = 65000
)

func egressBase(n Node) []openflow.Flow {
	flows := []openflow.Flow{
		next(TableAdminEgress, TableEgress),
		next(TableEgress, TableEgressDefault),
		next(TableEgressDefault, TableEgressMetrics),
		next(TableEgressMetrics, TableL3Forwarding),
	}
	if n.Userspace && n.OrderedEgress {
		for _, p := range n.PodCIDRs {
			flows = append(flows, openflow.Flow{
				Table: TableEgressMetrics, Priority: priorityFragments,
				Match: from(p).CTState(openflow.CTNew|openflow.CTTrk, 0).LaterFragment().Bits(openflow.Reg5, 0, exactMark),
			})
		}
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
