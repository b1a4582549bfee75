package policyflows

// Table 85, rules of the admin tier for ingress: as table 45, with the pods by
// their port, the peers as sources, and tables 101 and 90 behind it.
//
//	table=85,priority=64989,ip,reg1=0x3 actions=drop                                   (closed pod)
//	table=85,priority=14000,ip,nw_src=B actions=conjunction(4,1/3)
//	table=85,priority=14000,ip,reg1=0x19c actions=conjunction(4,2/3)
//	table=85,priority=14000,tcp,tp_dst=80 actions=conjunction(4,3/3)
//	table=85,priority=14000,conj_id=4,ip actions=set_field:0x4->reg3,
//	    set_field:0x100000/0x100000->reg0,resubmit(,101)
//
// The isolation of namespaces is above all tiers. A packet that it hands on is looked up here again, with a bit of reg0 by
// which isolation does not match it.
//
//	table=85,priority=64921,ip,nw_src=OWN actions=conjunction(7,1/2)
//	table=85,priority=64921,ip,reg0=0/0x40000,reg1=0x19c actions=conjunction(7,2/2)
//	table=85,priority=64921,conj_id=7,ip actions=set_field:0x40000/0x40000->reg0,resubmit(,85)
//	table=85,priority=64920,ip,nw_src=PODS actions=conjunction(8,1/2)
//	table=85,priority=64920,ip,reg0=0/0x40000,reg1=0x19c actions=conjunction(8,2/2)
//	table=85,priority=64920,conj_id=8,ip actions=set_field:0x8->reg3,set_field:0x100000/0x100000->reg0,resubmit(,101)

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// closedIngress closes a pod in both tables that may be the first of its
// direction: packets come to 85 only where there are rules in it.
func closedIngress(p *pod, f model.Family, deny []openflow.Action) []openflow.Flow {
	var flows []openflow.Flow
	for _, m := range p.matches(model.Ingress, f) {
		flows = append(flows,
			openflow.Flow{Table: pipeline.TableAdminIngress, Priority: priorityAdminClosed, Match: m, Actions: deny},
			openflow.Flow{Table: pipeline.TableIngress, Priority: priorityRuleClosed, Match: m, Actions: deny},
		)
	}
	return flows
}
