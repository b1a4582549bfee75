package policyflows

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// decide renders the flow of a fulfilled conjunction in a family. report has the actions that
// report a packet of a rule with Log. They come when a register has the id of the rule.
func (l layer) decide(r *rule, f model.Family, report []openflow.Action) openflow.Flow {
	flow := openflow.Flow{Table: l.table(), Priority: r.actionPriority(), Match: ip(f).ConjID(r.id)}
	switch r.spec.Action {
	case model.Allow:
		flow.Actions = []openflow.Action{
			openflow.SetRegister(l.allowed(), r.id),
		}
		flow.Actions = append(append(flow.Actions, report...),
			openflow.CT(openflow.CTSpec{
				Commit: true, Zone: pipeline.Zone, Table: l.metrics(),
				Exec: []openflow.Action{openflow.SetCTLabelBits(l.label(r.id), l.label(^uint32(0)))},
			}))
	case model.Deny, model.Reject:
		flow.Actions = []openflow.Action{
			openflow.SetRegister(openflow.Reg3, r.id),
			openflow.SetBits(openflow.Reg0, pipeline.Denied, pipeline.Denied),
		}
		flow.Actions = append(append(flow.Actions, report...), openflow.Resubmit(l.metrics()))
	case model.Pass:
		if len(report) > 0 {
			flow.Actions = append(append(flow.Actions, openflow.SetRegister(openflow.Reg3, r.id)), report...)
			flow.Actions = append(flow.Actions, openflow.SetRegister(openflow.Reg3, 0))
		}
		flow.Actions = append(flow.Actions, openflow.Resubmit(l.passes()))
	case model.Next:
		// The clauses before all tiers do not match the packet again (renderer.podFlows).
		flow.Actions = []openflow.Action{openflow.SetBits(l.asked(), pipeline.Asked, pipeline.Asked), openflow.Resubmit(l.table())}
	}
	// An action that is none drops.
	return flow
}
