package cluster

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// Model keeps the model for status and modules. It gets every update that the managers get.
type Model struct {
	Policies    map[model.PolicyID]*model.Policy
	Endpoints   map[model.PodID]*model.Endpoint
	Attachments map[model.PodID]*model.Attachment
	Nodes       map[string]*model.Node
	Groups      map[model.GroupID]model.Group
	Host        model.HostAddressesUpdate
	Services    model.ServiceCIDRsUpdate
	// ServicePorts are the ports of Services that this node serves.
	ServicePorts map[model.ServicePortID]*model.ServicePort
	// Hops is nil until the neighbours that lead to routed peers are known.
	Hops *model.HopsUpdate
	// HostPolicies are those of the node itself; nil if there never was one.
	HostPolicies *model.HostPolicies
	Denials      model.DenialsUpdate
	Logs         model.LogsUpdate
	// revision counts the updates. pending has the objects that are not programmed yet, by
	// identifier, with the count at their newest update.
	revision uint64
	pending  map[any]uint64
	// waits reports whether a policy waits for its turn; nil if none ever does.
	waits func(model.PolicyID) bool
}

// UnknownPod is the reason why an attached pod is closed that the datastore does not have.
const UnknownPod = "the datastore knows no such pod on this node"

// nodeID is the identifier of a node among those of other objects.
type nodeID string

// NewModel returns a model without objects.
func NewModel() *Model {
	return &Model{
		Policies:  map[model.PolicyID]*model.Policy{},
		Endpoints: map[model.PodID]*model.Endpoint{}, Attachments: map[model.PodID]*model.Attachment{},
		Nodes: map[string]*model.Node{}, Groups: map[model.GroupID]model.Group{}, pending: map[any]uint64{},
		ServicePorts: map[model.ServicePortID]*model.ServicePort{},
	}
}

// Revision returns the number of updates so far.
func (t *Model) Revision() uint64 { return t.revision }

// Pending counts the objects that are not programmed yet.
func (t *Model) Pending() int { return len(t.pending) }

// Await makes the pods pending of which waits holds for a policy.
func (t *Model) Await(waits func(model.PolicyID) bool) { t.waits = waits }

// Rules counts the rules of all policies that apply on this node.
func (t *Model) Rules() int {
	n := 0
	for _, p := range t.Policies {
		n += len(p.Ingress) + len(p.Egress)
	}
	return n
}

// AllPolicies returns the policies that apply to pods of this node or to the node itself. It is a copy.
func (t *Model) AllPolicies() map[model.PolicyID]*model.Policy {
	all := maps.Clone(t.Policies)
	if t.HostPolicies != nil {
		for _, p := range t.HostPolicies.Policies {
			all[p.ID] = p
		}
	}
	return all
}

// OnUpdate notes an update.
func (t *Model) OnUpdate(u model.Update) {
	t.revision++
	switch u := u.(type) {
	case model.GroupUpdate:
		t.Groups[u.Group.ID] = u.Group
		t.pending[u.Group.ID] = t.revision
	case model.GroupRemove:
		delete(t.Groups, u.ID)
		t.pending[u.ID] = t.revision
	case model.PolicyUpdate:
		t.Policies[u.Policy.ID] = u.Policy
		t.pending[u.Policy.ID] = t.revision
	case model.PolicyRemove:
		delete(t.Policies, u.ID)
		t.pending[u.ID] = t.revision
	case model.HostPoliciesUpdate:
		t.HostPolicies = u.Policies
	case model.EndpointUpdate:
		t.Endpoints[u.Endpoint.ID] = u.Endpoint
		t.pending[u.Endpoint.ID] = t.revision
	case model.EndpointRemove:
		delete(t.Endpoints, u.ID)
		t.pending[u.ID] = t.revision
	case model.AttachmentUpdate:
		t.Attachments[u.Attachment.Pod] = u.Attachment
		t.pending[u.Attachment.Pod] = t.revision
	case model.AttachmentRemove:
		if a := t.Attachments[u.Pod]; a != nil && a.Interface == u.Interface {
			delete(t.Attachments, u.Pod)
		}
	case model.NodeUpdate:
		t.Nodes[u.Node.Name] = u.Node
		t.pending[nodeID(u.Node.Name)] = t.revision
	case model.NodeRemove:
		delete(t.Nodes, u.Name)
		t.pending[nodeID(u.Name)] = t.revision
	case model.HostAddressesUpdate:
		t.Host = u
	case model.HopsUpdate:
		t.Hops = &u
	case model.ServiceCIDRsUpdate:
		t.Services = u
	case model.ServicePortUpdate:
		t.ServicePorts[u.Port.ID] = u.Port
	case model.ServicePortRemove:
		delete(t.ServicePorts, u.ID)
	case model.DenialsUpdate:
		t.Denials = u
	case model.LogsUpdate:
		t.Logs = u
	}
}

// Programmed notes that the first updates, up to this count, are in the dataplane now.
func (t *Model) Programmed(revision uint64) {
	maps.DeleteFunc(t.pending, func(_ any, at uint64) bool { return at <= revision })
}

// State returns the state of a pod, and the reason if its traffic is dropped. closed has the
// pods that quarantined objects close.
func (t *Model) State(id model.PodID, closed map[model.PodID]string) (state, reason string) {
	_, pending := t.pending[id]
	pending = pending || t.waitsFor(id)
	switch {
	case t.Attachments[id] == nil:
		return control.EndpointDetached, ""
	case pending:
		return control.EndpointPending, ""
	case t.Endpoints[id] == nil:
		return control.EndpointClosed, UnknownPod
	case closed[id] != "":
		return control.EndpointClosed, closed[id]
	}
	return control.EndpointProgrammed, ""
}

// waitsFor reports whether a policy of the pod waits for its turn.
func (t *Model) waitsFor(id model.PodID) bool {
	e := t.Endpoints[id]
	return e != nil && t.waits != nil && (slices.ContainsFunc(e.Ingress.NetworkPolicies, t.waits) || slices.ContainsFunc(e.Egress.NetworkPolicies, t.waits))
}

// Pods returns the pods that are attached or known, in order.
func (t *Model) Pods() []model.PodID {
	all := slices.AppendSeq(slices.Collect(maps.Keys(t.Endpoints)), maps.Keys(t.Attachments))
	slices.SortFunc(all, model.PodID.Compare)
	return slices.Compact(all)
}

// attached returns the attachments, in order of their pods.
func (t *Model) attached() []model.Update {
	var all []model.Update
	for _, id := range t.Pods() {
		if a := t.Attachments[id]; a != nil {
			all = append(all, model.AttachmentUpdate{Attachment: a})
		}
	}
	return all
}
