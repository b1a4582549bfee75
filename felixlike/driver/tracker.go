package driver

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// tracker keeps the model for status. It gets every update that the managers get.
type tracker struct {
	node        string
	policies    map[model.PolicyID]*model.Policy
	endpoints   map[model.PodID]*model.Endpoint
	attachments map[model.PodID]*model.Attachment
	nodes       map[string]*model.Node
	groups      map[model.GroupID]model.Group
	host        model.HostAddressesUpdate
	services    model.ServiceCIDRsUpdate
	// hops is nil until the neighbours that lead to routed peers are known.
	hops    *model.HopsUpdate
	denials model.DenialsUpdate
	logs    model.LogsUpdate
	// noted counts the updates. pending has the objects that are not programmed yet, by
	// identifier, with the count at their newest update.
	noted   uint64
	pending map[any]uint64
	// waits has the policies that wait for their turn.
	waits map[model.PolicyID]bool
}

// unknownPod is the reason why an attached pod is closed that the datastore does not have.
const unknownPod = "the datastore knows no such pod on this node"

// nodeID is the identifier of a node among those of other objects.
type nodeID string

func newTracker(node string) *tracker {
	return &tracker{
		node:      node,
		policies:  map[model.PolicyID]*model.Policy{},
		endpoints: map[model.PodID]*model.Endpoint{}, attachments: map[model.PodID]*model.Attachment{},
		nodes: map[string]*model.Node{}, groups: map[model.GroupID]model.Group{}, pending: map[any]uint64{},
	}
}

// rules counts the rules of all policies that apply on this node.
func (t *tracker) rules() int {
	n := 0
	for _, p := range t.policies {
		n += len(p.Ingress) + len(p.Egress)
	}
	return n
}

// OnUpdate notes an update.
func (t *tracker) OnUpdate(u model.Update) {
	t.noted++
	switch u := u.(type) {
	case model.GroupUpdate:
		t.groups[u.Group.ID] = u.Group
		t.pending[u.Group.ID] = t.noted
	case model.GroupRemove:
		delete(t.groups, u.ID)
		t.pending[u.ID] = t.noted
	case model.PolicyUpdate:
		t.policies[u.Policy.ID] = u.Policy
		t.pending[u.Policy.ID] = t.noted
	case model.PolicyRemove:
		delete(t.policies, u.ID)
		t.pending[u.ID] = t.noted
	case model.EndpointUpdate:
		t.endpoints[u.Endpoint.ID] = u.Endpoint
		t.pending[u.Endpoint.ID] = t.noted
	case model.EndpointRemove:
		delete(t.endpoints, u.ID)
		t.pending[u.ID] = t.noted
	case model.AttachmentUpdate:
		t.attachments[u.Attachment.Pod] = u.Attachment
		t.pending[u.Attachment.Pod] = t.noted
	case model.AttachmentRemove:
		if a := t.attachments[u.Pod]; a != nil && a.Interface == u.Interface {
			delete(t.attachments, u.Pod)
		}
	case model.NodeUpdate:
		t.nodes[u.Node.Name] = u.Node
		t.pending[nodeID(u.Node.Name)] = t.noted
	case model.NodeRemove:
		delete(t.nodes, u.Name)
		t.pending[nodeID(u.Name)] = t.noted
	case model.HostAddressesUpdate:
		t.host = u
	case model.HopsUpdate:
		t.hops = &u
	case model.ServiceCIDRsUpdate:
		t.services = u
	case model.DenialsUpdate:
		t.denials = u
	case model.LogsUpdate:
		t.logs = u
	}
}

// programmed notes that the first updates, up to this count, are in the dataplane now.
func (t *tracker) programmed(noted uint64) {
	maps.DeleteFunc(t.pending, func(_ any, at uint64) bool { return at <= noted })
}

// state returns the state of a pod, and the reason if its traffic is dropped. closed has the
// pods that quarantined objects close.
func (t *tracker) state(id model.PodID, closed map[model.PodID]string) (state, reason string) {
	_, pending := t.pending[id]
	pending = pending || t.waitsFor(id)
	switch {
	case t.attachments[id] == nil:
		return control.EndpointDetached, ""
	case pending:
		return control.EndpointPending, ""
	case t.endpoints[id] == nil:
		return control.EndpointClosed, unknownPod
	case closed[id] != "":
		return control.EndpointClosed, closed[id]
	}
	return control.EndpointProgrammed, ""
}

// waitsFor reports whether a policy of the pod waits for its turn.
func (t *tracker) waitsFor(id model.PodID) bool {
	e := t.endpoints[id]
	if e == nil || len(t.waits) == 0 {
		return false
	}
	waits := func(p model.PolicyID) bool { return t.waits[p] }
	return slices.ContainsFunc(e.Ingress.NetworkPolicies, waits) || slices.ContainsFunc(e.Egress.NetworkPolicies, waits)
}

// fill writes the model's part of a status.
func (t *tracker) fill(s *control.Status, closed map[model.PodID]string) {
	s.Groups = len(t.groups)
	applied := map[model.PolicyID]int{}
	for _, id := range t.pods() {
		s.Endpoints = append(s.Endpoints, t.endpoint(id, closed, applied))
	}
	for _, id := range slices.SortedFunc(maps.Keys(t.policies), model.PolicyID.Compare) {
		p := t.policies[id]
		s.Policies = append(s.Policies, control.Policy{
			Tier: id.Tier.String(), Namespace: id.Namespace, Name: id.Name, API: id.API, Part: id.Part, Within: id.Within,
			IngressRules: len(p.Ingress), EgressRules: len(p.Egress), Endpoints: applied[id],
		})
	}
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		n := t.nodes[name]
		s.Nodes = append(s.Nodes, control.Node{
			Name: name, Addresses: texts(n.Addresses, netip.Addr.String),
			PodCIDRs: texts(n.PodCIDRs, netip.Prefix.String), Local: name == t.node,
		})
	}
}

// pods returns the pods that are attached or known, in order.
func (t *tracker) pods() []model.PodID {
	all := slices.AppendSeq(slices.Collect(maps.Keys(t.endpoints)), maps.Keys(t.attachments))
	slices.SortFunc(all, model.PodID.Compare)
	return slices.Compact(all)
}

func (t *tracker) endpoint(id model.PodID, closed map[model.PodID]string, applied map[model.PolicyID]int) control.Endpoint {
	e := control.Endpoint{Namespace: id.Namespace, Name: id.Name}
	e.State, e.Reason = t.state(id, closed)
	if a := t.attachments[id]; a != nil {
		e.Interface, e.Addresses = a.Interface, texts(a.Addresses, netip.Addr.String)
	}
	if p := t.endpoints[id]; p != nil {
		in, out := allPolicies(p.Ingress), allPolicies(p.Egress)
		e.IngressPolicies = texts(in, model.PolicyID.String)
		e.EgressPolicies = texts(out, model.PolicyID.String)
		both := append(in, out...)
		slices.SortFunc(both, model.PolicyID.Compare)
		for _, id := range slices.Compact(both) {
			applied[id]++
		}
	}
	return e
}

func allPolicies(a model.Applied) []model.PolicyID {
	return slices.Concat(a.Admin, a.NetworkPolicies, a.Baseline)
}

func texts[T any](values []T, text func(T) string) []string {
	var out []string
	for _, v := range values {
		out = append(out, text(v))
	}
	return out
}

// sortProblems orders problems by source, object and field.
func sortProblems(problems []model.Problem) {
	slices.SortFunc(problems, func(a, b model.Problem) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Object.String(), b.Object.String()),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
}

// attached returns the attachments, in order of their pods.
func (t *tracker) attached() []model.Update {
	var all []model.Update
	for _, id := range t.pods() {
		if a := t.attachments[id]; a != nil {
			all = append(all, model.AttachmentUpdate{Attachment: a})
		}
	}
	return all
}
