package policyflows

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// decide renders the flow of a fulfilled conjunction in a family.
func (l layer) decide(r *rule, f model.Family) openflow.Flow {
	flow := openflow.Flow{Table: l.table(), Priority: r.actionPriority(), Match: ip(f).ConjID(r.id)}
	switch r.spec.Action {
	case model.Allow:
		flow.Actions = []openflow.Action{
			openflow.SetRegister(l.allowed(), r.id),
			openflow.CT(openflow.CTSpec{
				Commit: true, Zone: pipeline.Zone, Table: l.metrics(),
				Exec: []openflow.Action{openflow.SetCTLabelBits(l.label(r.id), l.label(^uint32(0)))},
			}),
		}
	case model.Deny, model.Reject:
		flow.Actions = []openflow.Action{
			openflow.SetRegister(openflow.Reg3, r.id),
			openflow.SetBits(openflow.Reg0, pipeline.Denied, pipeline.Denied),
			openflow.Resubmit(l.metrics()),
		}
	case model.Pass:
		flow.Actions = []openflow.Action{openflow.Resubmit(l.passes())}
	}
	// An action that is none drops.
	return flow
}
