package policyflows

// Table 60, egress that no NetworkPolicy allows: it drops packets of pods that a
// NetworkPolicy isolates. The baseline tier judges the others, with priorities of 180
// and below.
//
//	table=60,priority=200,ip,nw_src=A actions=drop                                     (isolated)
//	table=60,priority=80,ip,nw_src=A actions=conjunction(5,1/2)
//	table=60,priority=80,ip,nw_dst=10.0.10.0/24 actions=conjunction(5,2/2)
//	table=60,priority=80,conj_id=5,ip actions=set_field:0x5->reg3,
//	    set_field:0x100000/0x100000->reg0,resubmit(,61)

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// isolatedFlows renders that a pod's new connections of a direction and family are
// dropped if no rule has allowed them.
func isolatedFlows(p *pod, d model.Direction, f model.Family, deny []openflow.Action) []openflow.Flow {
	table := pipeline.TableEgressDefault
	if d == model.Ingress {
		table = pipeline.TableIngressDefault
	}
	var flows []openflow.Flow
	for _, m := range p.matches(d, f) {
		flows = append(flows, openflow.Flow{Table: table, Priority: priorityIsolation, Match: m, Actions: deny})
	}
	return flows
}
