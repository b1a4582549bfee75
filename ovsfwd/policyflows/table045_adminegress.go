package policyflows

// Table 45, rules of the admin tier for egress, each at a priority of its own
// (precedence.go), here 14000. A rule that allows leads to the counters, one
// that passes to table 50, and one that denies to where it is counted and
// dropped.
//
//	table=45,priority=64989,ip,nw_src=A actions=drop                                   (closed pod)
//	table=45,priority=14000,ip,nw_src=A actions=conjunction(1,1/3)
//	table=45,priority=14000,ip,nw_dst=B actions=conjunction(1,2/3)
//	table=45,priority=14000,udp,tp_dst=53 actions=conjunction(1,3/3)
//	table=45,priority=14000,conj_id=1,ip actions=set_field:0x1->reg5,
//	    ct(commit,table=61,zone=65520,exec(set_field:0x100000000/0xffffffff00000000->ct_label))   (allow)
//	table=45,priority=14000,conj_id=1,ip actions=set_field:0x1->reg3,
//	    set_field:0x100000/0x100000->reg0,resubmit(,61)                                (deny)
//	table=45,priority=14000,conj_id=1,ip actions=resubmit(,50)                         (pass)
//
// EgressNetworkPolicies are above all tiers. A packet that stays in the cluster is looked up here again, with a bit of reg4 by
// which they do not match it. DENIED has no address of two rules of a policy.
//
//	table=45,priority=64921,ip,nw_dst=PODS actions=conjunction(7,1/2)
//	table=45,priority=64921,ip,reg4=0/0x40000,nw_src=A actions=conjunction(7,2/2)
//	table=45,priority=64921,conj_id=7,ip actions=set_field:0x40000/0x40000->reg4,resubmit(,45)
//	table=45,priority=64920,ip,nw_dst=DENIED actions=conjunction(8,1/2)
//	table=45,priority=64920,ip,reg4=0/0x40000,nw_src=A actions=conjunction(8,2/2)
//	table=45,priority=64920,conj_id=8,ip actions=set_field:0x8->reg3,set_field:0x100000/0x100000->reg0,resubmit(,61)
//
// Established connections, which a closed pod keeps, pass above, at 64990. IPv6
// is as IPv4, in this table and the others.

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// closedEgress closes a pod in the first table of its direction.
func closedEgress(p *pod, f model.Family, deny []openflow.Action) []openflow.Flow {
	var flows []openflow.Flow
	for _, m := range p.matches(model.Egress, f) {
		flows = append(flows, openflow.Flow{Table: pipeline.TableAdminEgress, Priority: priorityAdminClosed, Match: m, Actions: deny})
	}
	return flows
}

// closedFlows renders the flows that drop a pod's new connections of a direction and
// family, even if a rule allows them.
func closedFlows(p *pod, d model.Direction, f model.Family, deny []openflow.Action) []openflow.Flow {
	if d == model.Egress {
		return closedEgress(p, f, deny)
	}
	return closedIngress(p, f, deny)
}
