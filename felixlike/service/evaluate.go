package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/model"
)

// evaluate returns the ports of a Service, and notes its problems and its health.
func (e *Engine) evaluate(name types.NamespacedName, s *service) map[model.ServicePortID]*model.ServicePort {
	ports := map[model.ServicePortID]*model.ServicePort{}
	var problems []model.Problem
	var health model.ServiceHealth
	if p := s.spec; p != nil {
		problems = slices.Clone(p.problems)
		usable, refused := e.usableAddresses(p)
		problems = append(problems, refused...)
		for _, at := range p.ports {
			one, more := e.port(p, at, usable, s.slices)
			more = append(more, e.unreached(p, at, s.slices)...)
			ports[one.ID] = one
			problems = append(problems, more...)
		}
		if p.health != 0 {
			health = model.ServiceHealth{Namespace: name.Namespace, Name: name.Name, Port: p.health, LocalEndpoints: e.readyHere(p, s.slices)}
		}
	}
	problems = slices.Compact(problems) // a node port has one problem for both families
	if len(problems) == 0 {
		delete(e.problems, name)
	} else {
		e.problems[name] = problems
	}
	if health != e.health[name] {
		e.healthChanged = true
		if e.health[name] = health; health.Port == 0 {
			delete(e.health, name)
		}
	}
	return ports
}

// usableAddresses returns the addresses that the Service may have.
func (e *Engine) usableAddresses(p *spec) (usable []address, problems []model.Problem) {
	for _, a := range p.addresses {
		why := e.claims.refusedAddress(p, a)
		if e.prefixes != nil && a.kind == model.ClusterIP && a.Is4() && !slices.ContainsFunc(e.prefixes, func(in netip.Prefix) bool { return in.Contains(a.Addr) }) {
			why = fmt.Sprintf("%s is in none of the prefixes of Services (serviceCIDRs, ServiceCIDRs): not served", a.Addr)
		}
		if why != "" {
			problems = append(problems, p.newProblem(a.field, "%s", why))
		} else {
			usable = append(usable, a)
		}
	}
	return usable, problems
}

// port returns a port of a Service.
func (e *Engine) port(p *spec, at port, addresses []address, all map[string]*slice) (*model.ServicePort, []model.Problem) {
	var problems []model.Problem
	served := &model.ServicePort{
		ID:       model.ServicePortID{Namespace: p.name.Namespace, Name: p.name.Name, Protocol: at.protocol, Port: at.port},
		Affinity: p.affinity, Masquerade: !p.externalLocal,
	}
	chosen := e.choose(p, at, all)
	for _, f := range p.families {
		for _, ep := range chosen[f].all {
			if ep.ready || ep.serving {
				served.Serving = append(served.Serving, ep.AddrPort)
			}
			if e.reaches != nil {
				served.Known = append(served.Known, ep.AddrPort)
			}
		}
	}
	slices.SortFunc(served.Known, netip.AddrPort.Compare)
	slices.SortFunc(served.Serving, netip.AddrPort.Compare)
	add := func(kind model.FrontendKind, a netip.Addr, number uint16, field string) {
		if slices.ContainsFunc(served.Frontends, func(f model.Frontend) bool { return f.Addr == a && f.Port == number }) {
			return // the Service has the address as two kinds
		}
		if why := e.claims.refusedTuple(p, tuple{a, at.protocol, number}); why != "" {
			problems = append(problems, p.newProblem(field, "%s", why))
			return
		}
		served.Frontends = append(served.Frontends, chosen[familyOf(a)].frontend(p, kind, a, number))
	}
	for _, a := range addresses {
		add(a.kind, a.Addr, at.port, a.field)
	}
	if at.nodePort != 0 && !p.sameNodePort(at) {
		for _, f := range p.families {
			add(model.NodePort, f.unspecified(), at.nodePort, fmt.Sprintf("spec.ports[%d].nodePort", at.index))
		}
	}
	slices.SortFunc(served.Frontends, func(a, b model.Frontend) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
	return served, problems
}

// sameNodePort reports whether an earlier port of the Service has the node port, which the API server refuses.
func (p *spec) sameNodePort(at port) bool {
	return slices.ContainsFunc(p.ports, func(o port) bool {
		return o.index < at.index && o.protocol == at.protocol && o.nodePort == at.nodePort
	})
}

// choice holds the endpoints of a port, of one family.
type choice struct {
	selection
	all []endpoint
	// internal and external are for clients on this node and outside, cluster for clients on this node that use an address for those outside.
	internal, external, cluster []model.ServiceEndpoint
}

// choose returns the endpoints of a port for the families of its Service.
func (e *Engine) choose(p *spec, at port, all map[string]*slice) map[family]*choice {
	byFamily, chosen := e.endpointsOf(p, all, at), map[family]*choice{}
	for _, f := range p.families {
		c := &choice{selection: newSelection(byFamily[f], e.node, e.zone), all: byFamily[f]}
		c.cluster = used(c.all, c.selection.cluster)
		c.internal, c.external = c.cluster, c.cluster
		if p.internalLocal {
			c.internal = used(c.all, c.local)
		}
		if p.externalLocal {
			c.external = used(c.all, c.local)
		}
		chosen[f] = c
	}
	return chosen
}

// frontend returns a frontend with the chosen endpoints.
func (c *choice) frontend(p *spec, kind model.FrontendKind, a netip.Addr, number uint16) model.Frontend {
	f := model.Frontend{Kind: kind, Addr: a, Port: number, Endpoints: c.external, Inside: c.cluster}
	if kind == model.ClusterIP {
		f.Endpoints, f.Inside = c.internal, c.internal
	}
	if kind == model.LoadBalancerIP {
		f.Sources = p.sources(familyOf(a))
	}
	if len(f.Endpoints) == 0 && c.any {
		f.Empty = model.DropSilently
	}
	return f
}

// readyHere returns the number of ready endpoints on this node. Of a Service with two families, an endpoint has two addresses and counts once.
func (e *Engine) readyHere(p *spec, all map[string]*slice) int {
	addresses := map[family]map[netip.Addr]bool{4: {}, 6: {}}
	for _, at := range p.ports {
		for f, found := range e.endpointsOf(p, all, at) {
			for _, ep := range found {
				if ep.local && ep.ready {
					addresses[f][ep.Addr()] = true
				}
			}
		}
	}
	most := 0
	for _, f := range p.families {
		most = max(most, len(addresses[f]))
	}
	return most
}
