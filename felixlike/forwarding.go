package felixlike

import (
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/node"
	"github.com/felixlike/felixlike/felixlike/tenants"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/multitenant"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// noticeRefused says that an object is not in force with pipelineVariant: openshift.
const noticeRefused = "NotInForce"

// forwarding has the managers of the bridge's forwarding flows, of one pipeline.
type forwarding struct {
	forwardingManager
	tunnel node.Steered
	flows  *openflow.FlowTable
	// multitenant is the manager of all flows with pipelineVariant: openshift, and tenants its module; else both are nil.
	multitenant *managers.MultitenantManager
	tenants     *tenants.Tenants
	// owner is that of the flows, others the owners of flows of the other pipeline.
	owner  uint16
	others []uint16
}

type forwardingManager interface {
	node.Forwarding
	Problems() []model.Problem
}

// forwarding returns the managers of the configured pipeline.
func (a *agent) forwarding() *forwarding {
	c := a.backendConfig
	if c.Multitenant() {
		f := &forwarding{
			flows: openflow.NewFlowTable(multitenant.Owner, multitenant.Version), tenants: tenants.New(c.Node, c.Cluster),
			owner: multitenant.Owner, others: []uint16{pipeline.Owner, pipeline.PolicyOwner, pipeline.AssociationOwner, pipeline.AffinityOwner},
		}
		f.multitenant = backend.MultitenantManager(c, f.flows)
		f.forwardingManager, f.tunnel = f.multitenant, nothing{}
		return f
	}
	f := &forwarding{flows: openflow.NewFlowTable(pipeline.Owner, pipeline.Version), owner: pipeline.Owner, others: []uint16{multitenant.Owner}}
	f.flows.Behind(managers.BehindOthers)
	f.forwardingManager = managers.NewForwardingManager(a.cfg.NodeName, c.Switch.Node, f.flows)
	f.tunnel = managers.NewTunnelManager(a.cfg.NodeName, c.TrafficMode, c.Switch.Node, f.flows)
	return f
}

// modules returns the modules of the pipeline: what of users' objects it does not put in force, and why this node forwards nothing.
func (f *forwarding) modules() []driver.Module {
	if f.multitenant == nil {
		return nil
	}
	return []driver.Module{f.tenants.Module(), {
		ObjectProblems: func() []datastore.Notice { return noticesOf(f.multitenant.Refused(), datastore.KnownToSome) },
		Notices:        func() []datastore.Notice { return noticesOf(f.multitenant.Unready(), datastore.KnownHere) },
		Closed:         f.multitenant.Closed,
	}}
}

func noticesOf(all []model.Problem, known datastore.Known) (notices []datastore.Notice) {
	for _, p := range all {
		notices = append(notices, datastore.Notice{Problem: p, Kind: noticeRefused, Known: known})
	}
	return notices
}

// nothing is a manager of no flows.
type nothing struct{}

// OnUpdate implements managers.Manager.
func (nothing) OnUpdate(model.Update) {}

// CompleteDeferredWork implements managers.Manager.
func (nothing) CompleteDeferredWork() {}

// SetMode does nothing.
func (nothing) SetMode(pipeline.Mode) {}
