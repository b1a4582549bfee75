package status

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// fill writes the model's part of a status.
func (rep *Reporter) fill(s *control.Status, closed map[model.PodID]string) {
	t := rep.Cluster.Model()
	s.Groups = len(t.Groups)
	applied := map[model.PolicyID]int{}
	for _, id := range t.Pods() {
		s.Endpoints = append(s.Endpoints, endpointOf(t, id, closed, applied))
	}
	for _, id := range slices.SortedFunc(maps.Keys(t.Policies), model.PolicyID.Compare) {
		p := t.Policies[id]
		s.Policies = append(s.Policies, control.Policy{
			Tier: id.Tier.String(), Namespace: id.Namespace, Name: id.Name, API: id.API, Part: id.Part, Within: id.Within,
			IngressRules: len(p.Ingress), EgressRules: len(p.Egress), Endpoints: applied[id],
		})
	}
	for _, name := range slices.Sorted(maps.Keys(t.Nodes)) {
		n := t.Nodes[name]
		s.Nodes = append(s.Nodes, control.Node{
			Name: name, Addresses: texts(n.Addresses, netip.Addr.String),
			PodCIDRs: texts(n.PodCIDRs, netip.Prefix.String), Local: name == rep.Cluster.Node(),
		})
	}
}

func endpointOf(t *cluster.Model, id model.PodID, closed map[model.PodID]string, applied map[model.PolicyID]int) control.Endpoint {
	e := control.Endpoint{Namespace: id.Namespace, Name: id.Name}
	e.State, e.Reason = t.State(id, closed)
	if a := t.Attachments[id]; a != nil {
		e.Interface, e.Addresses = a.Interface, texts(a.Addresses, netip.Addr.String)
	}
	if p := t.Endpoints[id]; p != nil {
		in, out := slices.Collect(p.Ingress.All()), slices.Collect(p.Egress.All())
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

func texts[T any](values []T, text func(T) string) []string {
	var out []string
	for _, v := range values {
		out = append(out, text(v))
	}
	return out
}
