package driver

import (
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// feed hands objects and attachments to the policy engine, and the engine's updates to
// the managers.
type feed struct {
	cluster   *cluster
	stages    *stages
	scheduler *scheduler
	modules   modules
}

// onBatch feeds a batch of the datastore to the policy engine.
func (f *feed) onBatch(b datastore.Batch) {
	revision := f.cluster.model.revision
	f.cluster.observed = b.Revision
	var others []model.PodID
	for _, e := range b.Events {
		f.stages.beat()
		f.onEvent(e)
		if e, ok := e.(datastore.PodSet); ok && f.cluster.uids.note(f.cluster.node, e.Pod) {
			others = append(others, model.PodID{Namespace: e.Pod.Namespace, Name: e.Pod.Name})
		}
	}
	if b.InSync && !f.cluster.sourceSynced {
		f.cluster.sourceSynced = true
	}
	f.cluster.problems.source = b.Problems
	f.cluster.unread, f.cluster.outdated = b.Unknown, b.Outdated
	// A batch without changes for this node still advances the programmed revision.
	f.scheduler.dirty = true
	if f.scheduler.oldestPending.IsZero() {
		f.scheduler.oldestPending = time.Now()
	}
	f.flush()
	if f.cluster.model.revision > revision {
		// A recreated pod with other labels may have the same policies, but be in other
		// groups.
		for _, id := range others {
			f.cluster.model.pending[id] = f.cluster.model.revision
		}
		f.scheduler.latency.deliver(b.Seen, f.cluster.model.revision)
	}
}

func (f *feed) onEvent(e datastore.Event) {
	before := f.cluster.objects.policyOf(e)
	f.cluster.objects.onEvent(e)
	switch e := e.(type) {
	case datastore.NodeSet:
		f.cluster.nodeSources[e.Node.Name] = e.Source
		f.cluster.problems.setObject(model.NodeRef(e.Node.Name), e.Source, f.cluster.engine.SetNode(e.Node))
	case datastore.NodeDeleted:
		f.cluster.engine.DeleteNode(e.Name)
		f.cluster.problems.setObject(model.NodeRef(e.Name), "", nil)
		delete(f.cluster.nodeSources, e.Name)
	case datastore.NamespaceSet:
		f.cluster.engine.SetNamespace(e.Namespace)
	case datastore.NamespaceDeleted:
		f.cluster.engine.DeleteNamespace(e.Name)
	case datastore.ServiceCIDRsSet:
		f.cluster.engine.SetServiceCIDRs(slices.Concat(f.cluster.services, e.Prefixes))
		f.update(model.ServiceCIDRsUpdate{Prefixes: e.Prefixes})
	case datastore.PodSet:
		f.cluster.problems.setObject(ref("Pod", e.Pod.Namespace, e.Pod.Name), e.Source, f.cluster.engine.SetPod(e.Pod))
	case datastore.PodDeleted:
		delete(f.cluster.uids, e.ID)
		f.cluster.engine.DeletePod(e.ID)
		f.cluster.problems.setObject(ref("Pod", e.ID.Namespace, e.ID.Name), "", nil)
	case datastore.NetworkPolicySet:
		p := e.Policy
		f.cluster.policies[ref("NetworkPolicy", p.Namespace, p.Name)] = e.Source
		f.scheduler.admission.set(p, before, e.Source)
	case datastore.NetworkPolicyClosed:
		// The datastore reports why.
		f.scheduler.admission.closed(model.PodID{Namespace: e.Namespace, Name: e.Name})
		f.cluster.engine.SetClosedNetworkPolicy(e.Namespace, e.Name, e.PodSelector)
	case datastore.NetworkPolicyDeleted:
		f.scheduler.admission.remove(model.PodID{Namespace: e.Namespace, Name: e.Name})
		delete(f.cluster.policies, ref("NetworkPolicy", e.Namespace, e.Name))
	case datastore.ClusterNetworkPolicySet:
		object := ref("ClusterNetworkPolicy", "", e.Policy.Name)
		f.cluster.policies[object] = e.Source
		f.scheduler.tiered.set(object, costOfCluster(e.Policy, f.stages.backend.Place()), func() {
			f.cluster.problems.setObject(object, e.Source, f.cluster.engine.SetClusterNetworkPolicy(e.Policy))
		})
	case datastore.ClusterNetworkPolicyDeleted:
		object := ref("ClusterNetworkPolicy", "", e.Name)
		f.scheduler.tiered.remove(object)
		f.cluster.engine.DeleteClusterNetworkPolicy(e.Name)
		f.cluster.problems.setObject(object, "", nil)
		delete(f.cluster.policies, object)
	case datastore.AntreaSet:
		f.cluster.antreaSources[e.Object.ID().Ref()] = e.Source
		f.scheduler.tiered.set(e.Object.ID().Ref(), costOfAntrea(e.Object, f.stages.backend.Place()), func() { f.cluster.engine.SetAntrea(e.Object) })
	case datastore.AntreaDeleted:
		f.scheduler.tiered.remove(e.ID.Ref())
		f.cluster.engine.DeleteAntrea(e.ID)
		delete(f.cluster.antreaSources, e.ID.Ref())
	}
	f.modules.onEvent(e)
}

func (f *feed) onAttachment(u model.Update) {
	switch u := u.(type) {
	case model.AttachmentUpdate:
		f.cluster.attach(u.Attachment)
	case model.AttachmentRemove:
		f.cluster.detach(u)
	}
	f.update(u)
	f.flush()
}

// flush hands the updates of the engine and of modules to the managers.
func (f *feed) flush() {
	for _, u := range slices.Concat(f.cluster.engine.Flush(), f.modules.updates()) {
		f.update(u)
	}
	f.scheduler.admission.flushed()
	f.scheduler.tiered.flushed()
	f.modules.onFlush(f.scheduler.admission.partial, f.cluster.model.revision)
}

// update hands an update to the managers. This node's last known object stays in force when
// the datastore loses it: without it, no policy could be programmed.
func (f *feed) update(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		f.cluster.nodeLost = f.cluster.nodeLost && u.Node.Name != f.cluster.node
	case model.NodeRemove:
		if u.Name == f.cluster.node {
			f.cluster.nodeLost = true
			return
		}
	}
	f.stages.beat()
	f.scheduler.dirty = true
	f.stages.quarantine.modelChanged()
	f.cluster.model.OnUpdate(u)
	f.modules.onUpdate(u, f.cluster.model.revision)
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
