package pipeline

// Table 85, ingress of the admin tier, without any policy. Packets come here
// while such a policy has an ingress rule for a pod of this node.
//
//	table=85,priority=64992,ip,reg0=0x1/0xffff,nw_src=OWN actions=goto_table:105           (and ipv6, as all here)
//	table=85,priority=64991,ct_state=-new+est,ct_label=0/ALLOWED,ip actions=ct_clear,resubmit(,85)    (and +rel)
//	table=85,priority=64990,ct_state=-new+est,ip actions=goto_table:105                    (and +rel)
//	table=85,priority=0 actions=goto_table:90
//
// An egress rule that commits a connection gives the packet its state back, which table 31 had taken: hence
// the second check of the label.

import "github.com/felixlike/felixlike/ovsfwd/openflow"

const (
	priorityAdminNotAllowed uint16 = priorityAdminEstablished + 1
	priorityAdminOwnNode    uint16 = priorityAdminEstablished + 2
)

func adminIngressBase(n Node) []openflow.Flow {
	flows := []openflow.Flow{next(TableAdminIngress, TableIngress)}
	for _, a := range n.Own() {
		flows = append(flows, openflow.Flow{
			Table: TableAdminIngress, Priority: priorityAdminOwnNode,
			Match: from(single(a)).Bits(openflow.Reg0, sourceGW, sourceMask), Actions: jump(TableCommit),
		})
	}
	flows = append(flows, judgeAgain(TableAdminIngress, priorityAdminNotAllowed)...)
	return append(flows, established(TableAdminIngress, priorityAdminEstablished, TableCommit)...)
}

// judgeAgain makes the flows that take the state from packets of connections
// that are not allowed, so that the table's rules judge them.
func judgeAgain(table uint8, priority uint16) []openflow.Flow {
	var flows []openflow.Flow
	for _, ip := range ipFamilies() {
		for _, state := range []openflow.CTFlags{openflow.CTEst, openflow.CTRel} {
			flows = append(flows, openflow.Flow{
				Table: table, Priority: priority, Match: notAllowed(ip.CTState(state, openflow.CTNew)),
				Actions: []openflow.Action{openflow.CTClear(), openflow.Resubmit(table)},
			})
		}
	}
	return flows
}
