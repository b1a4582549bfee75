package felixlike

import (
	"time"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// onBatch feeds a batch of the datastore to the policy engine.
func (d *Driver) onBatch(b datastore.Batch) {
	noted := d.tracker.noted
	d.observed = b.Revision
	var others []model.PodID
	for _, e := range b.Events {
		d.beat()
		d.onEvent(e)
		if e, ok := e.(datastore.PodSet); ok && d.uids.note(d.cfg.Node, e.Pod) {
			others = append(others, model.PodID{Namespace: e.Pod.Namespace, Name: e.Pod.Name})
		}
	}
	d.sourceSynced = d.sourceSynced || b.InSync
	d.problems.source = b.Problems
	// A batch that changes nothing here still makes its revision programmed.
	d.dirty = true
	if d.behind.IsZero() {
		d.behind = time.Now()
	}
	d.flush()
	if d.tracker.noted > noted {
		// The same policies may apply to a pod that was made anew with other labels, and
		// yet is it in other groups now.
		for _, id := range others {
			d.tracker.pending[id] = d.tracker.noted
		}
		d.latency.deliver(b.Seen, d.tracker.noted)
	}
}

func (d *Driver) onEvent(e datastore.Event) {
	before := d.objects.policyOf(e)
	d.objects.onEvent(e)
	switch e := e.(type) {
	case datastore.NodeSet:
		d.problems.setObject(ref("Node", "", e.Node.Name), e.Source, d.engine.SetNode(e.Node))
	case datastore.NodeDeleted:
		d.engine.DeleteNode(e.Name)
		d.problems.setObject(ref("Node", "", e.Name), "", nil)
	case datastore.NamespaceSet:
		d.engine.SetNamespace(e.Namespace)
	case datastore.NamespaceDeleted:
		d.engine.DeleteNamespace(e.Name)
	case datastore.ServiceCIDRsSet:
		d.update(model.ServiceCIDRsUpdate{Prefixes: e.Prefixes})
	case datastore.PodSet:
		d.problems.setObject(ref("Pod", e.Pod.Namespace, e.Pod.Name), e.Source, d.engine.SetPod(e.Pod))
	case datastore.PodDeleted:
		delete(d.uids, e.ID)
		d.engine.DeletePod(e.ID)
		d.problems.setObject(ref("Pod", e.ID.Namespace, e.ID.Name), "", nil)
	case datastore.NetworkPolicySet:
		p := e.Policy
		d.policies[ref("NetworkPolicy", p.Namespace, p.Name)] = e.Source
		d.turns.set(d, p, before, e.Source)
	case datastore.NetworkPolicyClosed:
		// The datastore reports why.
		d.turns.closed(d, model.PodID{Namespace: e.Namespace, Name: e.Name})
		d.engine.SetClosedNetworkPolicy(e.Namespace, e.Name, e.PodSelector)
	case datastore.NetworkPolicyDeleted:
		d.turns.remove(d, model.PodID{Namespace: e.Namespace, Name: e.Name})
		delete(d.policies, ref("NetworkPolicy", e.Namespace, e.Name))
	case datastore.ClusterNetworkPolicySet:
		object := ref("ClusterNetworkPolicy", "", e.Policy.Name)
		d.policies[object] = e.Source
		d.problems.setObject(object, e.Source, d.engine.SetClusterNetworkPolicy(e.Policy))
	case datastore.ClusterNetworkPolicyDeleted:
		object := ref("ClusterNetworkPolicy", "", e.Name)
		d.engine.DeleteClusterNetworkPolicy(e.Name)
		d.problems.setObject(object, "", nil)
		delete(d.policies, object)
	}
}

// hostNetworkProblems names the policies that match hostNetwork pods, to which
// no policy applies: users keep trying.
func (d *Driver) hostNetworkProblems() []model.Problem {
	var found []model.Problem
	for r, source := range d.policies {
		for _, pod := range d.engine.HostNetworkTargets(r.Namespace, r.Name) {
			found = append(found, model.Problem{
				Source: source, Object: r, Field: "spec.podSelector",
				Reason: "matches pod " + pod.String() + ", which is on the host's network: no policy applies to it",
			})
		}
	}
	return found
}

// portProblems names the ports that a policy calls by names which no pod declares.
func (d *Driver) portProblems() []model.Problem {
	var found []model.Problem
	for r, source := range d.policies {
		for _, port := range d.engine.UnresolvedPorts(r.Namespace, r.Name) {
			found = append(found, model.Problem{
				Source: source, Object: r, Field: "spec",
				Reason: "no pod that the rules with the named port " + port + " are about declares it: they allow nothing to it",
			})
		}
	}
	return found
}

// peerProblems names the peers that no tunnel can reach.
func (d *Driver) peerProblems() []model.Problem {
	var found []model.Problem
	for name, n := range d.tracker.nodes {
		if name != d.cfg.Node && !n.Address(model.IPv4).IsValid() {
			found = append(found, model.Problem{
				Object: ref("Node", "", name), Field: "status.addresses",
				Reason: "no IPv4 InternalIP, which the tunnel's outer header needs: its pods cannot be reached",
			})
		}
	}
	return found
}

func ref(kind, namespace, name string) model.ObjectRef {
	return model.ObjectRef{Kind: kind, Namespace: namespace, Name: name}
}
