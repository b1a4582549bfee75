package cluster

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// Begin takes the revision of a batch of the datastore. Its events follow.
func (c *Cluster) Begin(revision uint64) { c.observed, c.recreated = revision, nil }

// End takes the rest of a batch, after its events.
func (c *Cluster) End(b datastore.Batch) {
	c.sourceSynced = c.sourceSynced || b.InSync
	c.problems.source = b.Problems
	c.unread, c.outdated = b.Unknown, b.Outdated
}

// AwaitRecreated makes the pods pending that the batch has recreated, after the model has its updates. Such a pod may have other labels
// and still the same policies, but be in other groups.
func (c *Cluster) AwaitRecreated() {
	for _, id := range c.recreated {
		c.model.pending[id] = c.model.revision
	}
}

// OnEvent notes a change of an object. The policy engine gets it from here, unless it is about a policy, whose cost decides when.
// Of a NetworkPolicy, OnEvent returns the object before, or nil.
func (c *Cluster) OnEvent(e datastore.Event) (before *networkingv1.NetworkPolicy) {
	before = c.objects.policyOf(e)
	c.objects.onEvent(e)
	switch e := e.(type) {
	case datastore.NodeSet:
		c.nodeSources[e.Node.Name] = e.Source
		c.SetProblems(model.NodeRef(e.Node.Name), e.Source, c.engine.SetNode(e.Node))
	case datastore.NodeDeleted:
		c.engine.DeleteNode(e.Name)
		c.SetProblems(model.NodeRef(e.Name), "", nil)
		delete(c.nodeSources, e.Name)
	case datastore.NamespaceSet:
		c.engine.SetNamespace(e.Namespace)
	case datastore.NamespaceDeleted:
		c.engine.DeleteNamespace(e.Name)
	case datastore.ServiceCIDRsSet:
		c.engine.SetServiceCIDRs(slices.Concat(c.cfg.ServiceCIDRs, e.Prefixes))
	case datastore.PodSet:
		id := model.PodID{Namespace: e.Pod.Namespace, Name: e.Pod.Name}
		c.SetProblems(id.Ref(), e.Source, c.engine.SetPod(e.Pod))
		if c.uids.note(c.cfg.Node, e.Pod) {
			c.recreated = append(c.recreated, id)
		}
	case datastore.PodDeleted:
		delete(c.uids, e.ID)
		c.engine.DeletePod(e.ID)
		c.SetProblems(e.ID.Ref(), "", nil)
	case datastore.NetworkPolicySet:
		c.policies[ref("NetworkPolicy", e.Policy.Namespace, e.Policy.Name)] = e.Source
	case datastore.NetworkPolicyDeleted:
		delete(c.policies, ref("NetworkPolicy", e.Namespace, e.Name))
	case datastore.ClusterNetworkPolicySet:
		c.policies[ref("ClusterNetworkPolicy", "", e.Policy.Name)] = e.Source
	case datastore.ClusterNetworkPolicyDeleted:
		delete(c.policies, ref("ClusterNetworkPolicy", "", e.Name))
	case datastore.AntreaSet:
		c.antreaSources[e.Object.ID().Ref()] = e.Source
	case datastore.AntreaDeleted:
		delete(c.antreaSources, e.ID.Ref())
	}
	return before
}

// OnAttachment gives the policy engine a change of an attachment.
func (c *Cluster) OnAttachment(u model.Update) {
	switch u := u.(type) {
	case model.AttachmentUpdate:
		c.attach(u.Attachment)
	case model.AttachmentRemove:
		c.detach(u)
	}
}

// OnUpdate gives the model an update, and reports whether it is for the managers. This node's last known object stays in force when
// the datastore loses it: without it, no policy could be programmed.
func (c *Cluster) OnUpdate(u model.Update) bool {
	switch u := u.(type) {
	case model.NodeUpdate:
		c.nodeLost = c.nodeLost && u.Node.Name != c.cfg.Node
	case model.NodeRemove:
		if u.Name == c.cfg.Node {
			c.nodeLost = true
			return false
		}
	}
	c.model.OnUpdate(u)
	return true
}

// Snapshot returns the updates from which managers without any make the model, but for what modules add after the start.
func (c *Cluster) Snapshot() []model.Update {
	all := c.engine.Snapshot()
	if c.nodeLost { // the last known object stays in force
		all = append(all, model.NodeUpdate{Node: c.model.Nodes[c.cfg.Node]})
	}
	return append(append(all, c.model.Host, c.model.Services, c.model.Denials), c.model.attached()...)
}
