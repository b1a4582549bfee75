package driver

import (
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
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
	f.scheduler.dirty = true
	if f.scheduler.oldestPending.IsZero() {
		f.scheduler.oldestPending = time.Now()
	}
	f.flush()
	if f.cluster.Model().Revision() > revision {
		f.cluster.AwaitRecreated()
		f.scheduler.latency.deliver(b.Seen, f.cluster.Model().Revision())
	}
}

func (f *feed) onEvent(e datastore.Event) {
	before := f.cluster.OnEvent(e)
	switch e := e.(type) {
	case datastore.ServiceCIDRsSet:
		f.update(model.ServiceCIDRsUpdate{Prefixes: e.Prefixes})
	case datastore.NetworkPolicySet:
		f.scheduler.admission.set(e.Policy, before, e.Source)
	case datastore.NetworkPolicyClosed:
		// The datastore reports why.
		f.scheduler.admission.closed(model.PodID{Namespace: e.Namespace, Name: e.Name})
		f.cluster.Engine().SetClosedNetworkPolicy(e.Namespace, e.Name, e.PodSelector)
	case datastore.NetworkPolicyDeleted:
		f.scheduler.admission.remove(model.PodID{Namespace: e.Namespace, Name: e.Name})
	case datastore.ClusterNetworkPolicySet:
		object := model.ObjectRef{Kind: "ClusterNetworkPolicy", Name: e.Policy.Name}
		f.scheduler.tiered.set(object, costOfCluster(e.Policy, f.stages.backend.Place()), func() {
			f.cluster.SetProblems(object, e.Source, f.cluster.Engine().SetClusterNetworkPolicy(e.Policy))
		})
	case datastore.ClusterNetworkPolicyDeleted:
		object := model.ObjectRef{Kind: "ClusterNetworkPolicy", Name: e.Name}
		f.scheduler.tiered.remove(object)
		f.cluster.Engine().DeleteClusterNetworkPolicy(e.Name)
		f.cluster.SetProblems(object, "", nil)
	case datastore.AntreaSet:
		f.scheduler.tiered.set(e.Object.ID().Ref(), costOfAntrea(e.Object, f.stages.backend.Place()), func() { f.cluster.Engine().SetAntrea(e.Object) })
	case datastore.AntreaDeleted:
		f.scheduler.tiered.remove(e.ID.Ref())
		f.cluster.Engine().DeleteAntrea(e.ID)
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
	f.scheduler.admission.flushed()
	f.scheduler.tiered.flushed()
	f.modules.onFlush(f.scheduler.admission.partial, f.cluster.Model().Revision())
}

// update hands an update to the managers.
func (f *feed) update(u model.Update) {
	if !f.cluster.OnUpdate(u) {
		return
	}
	f.stages.beat()
	f.scheduler.dirty = true
	f.stages.quarantine.ModelChanged()
	f.modules.onUpdate(u, f.cluster.Model().Revision())
	// A new change does not wait for the retry of a failed cycle.
	if retry := f.scheduler.lastApply.At.Add(f.scheduler.cfg.Throttle); retry.Before(f.scheduler.nextApply) {
		f.scheduler.nextApply = retry
	}
	f.stages.shared.update(u, f.stages.cycle != nil)
	for _, r := range f.stages.runners {
		if r.wants == f.stages.shared {
			continue
		}
		r.wants.update(u, f.stages.handover.verifies(r))
		// Policy does not wait for slow stages.
		r.dirty = r.dirty || f.stages.cycle != nil
	}
}
