package driver

import (
	"slices"

	"github.com/felixlike/felixlike/felixlike/admission"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// feed hands objects and attachments to the policy engine, and the engine's updates to
// the managers.
type feed struct {
	cluster   *cluster.Cluster
	stages    *stages
	scheduler *scheduler
	modules   modules
}

// onBatch feeds a batch of the datastore to the policy engine.
func (f *feed) onBatch(b datastore.Batch) {
	revision := f.cluster.Model().Revision()
	f.cluster.Begin(b.Revision)
	for _, e := range b.Events {
		f.stages.beat()
		f.onEvent(e)
	}
	f.cluster.End(b)
	// A batch without changes for this node still advances the programmed revision.
	f.scheduler.pace.batch()
	f.flush()
	if f.cluster.Model().Revision() > revision {
		f.cluster.AwaitRecreated()
		f.scheduler.latency.deliver(b.Seen, f.cluster.Model().Revision())
	}
}

func (f *feed) onEvent(e datastore.Event) {
	f.scheduler.admission.OnEvent(e, f.cluster.OnEvent(e))
	if e, ok := e.(datastore.ServiceCIDRsSet); ok {
		f.update(model.ServiceCIDRsUpdate{Prefixes: e.Prefixes})
	}
	f.modules.onEvent(e)
}

func (f *feed) onAttachment(u model.Update) {
	f.cluster.OnAttachment(u)
	f.update(u)
	f.flush()
}

// flush hands the updates of the engine and of modules to the managers.
func (f *feed) flush() {
	for _, u := range slices.Concat(f.cluster.Engine().Flush(), f.modules.updates()) {
		f.update(u)
	}
	f.scheduler.admission.Flushed()
	f.modules.onFlush(f.scheduler.admission.Partial, f.cluster.Model().Revision())
}

// update hands an update to the managers.
func (f *feed) update(u model.Update) {
	if !f.cluster.OnUpdate(u) {
		return
	}
	f.stages.beat()
	f.scheduler.pace.update()
	f.stages.quarantine.ModelChanged()
	f.modules.onUpdate(u, f.cluster.Model().Revision())
	f.stages.shared.update(u, f.scheduler.cycle != nil)
	for _, r := range f.stages.runners {
		if r.wants == f.stages.shared {
			continue
		}
		r.wants.update(u, f.stages.handover.verifies(r))
		if f.scheduler.cycle != nil { // policy does not wait for slow stages
			r.again()
		}
	}
}

// policyStage is the backend in force as the admission of policies sees it.
type policyStage struct{ *feed }

func (p policyStage) Runs() (r admission.Runs, found bool) {
	decides := p.stages.decides()
	if decides == nil {
		return r, false
	}
	r = admission.Runs{Applied: decides.applied, Failures: decides.failures, Programmed: decides.programmed}
	if decides.running {
		r.Taken = decides.attempted
	}
	if p.scheduler.cycle != nil {
		r.Taken = max(r.Taken, p.scheduler.cycle.attempted)
	}
	return r, true
}

func (p policyStage) InSwitch() bool { return p.stages.backend.Place() == backend.InSwitch }

func (p policyStage) Flush() { p.flush() }

func (p policyStage) Quarantine(refused []tables.Refusal) {
	p.stages.quarantine.Set(p.stages.log(), agentStage, refused)
}

// agentStage is the stage that status names for policies that the agent quarantines.
const agentStage = "agent"
