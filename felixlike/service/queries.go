package service

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/model"
)

// Port says how this node serves a port of a Service.
type Port struct {
	// Name is that of the port in the Service; it may be empty.
	Name   string
	Served *model.ServicePort
	// Endpoints are all endpoints of the port, also those that are not used, sorted.
	Endpoints []Endpoint
}

// Endpoint says whether this node uses an endpoint.
type Endpoint struct {
	model.ServiceEndpoint
	// Node is where the endpoint is, if its EndpointSlice says it.
	Node string
	// Internal and External say why clients on this node and outside do not reach it; "" if they do.
	Internal, External string
}

// Names returns the Services that this node serves, sorted.
func (e *Engine) Names() []types.NamespacedName {
	return slices.DeleteFunc(slices.SortedFunc(maps.Keys(e.services), compareNames), func(n types.NamespacedName) bool { return e.services[n].spec == nil })
}

// Served returns the ports of a Service as the node serves them, in their order, after a Flush.
func (e *Engine) Served(name types.NamespacedName) (all []*model.ServicePort) {
	s := e.services[name]
	if s == nil || s.spec == nil {
		return nil
	}
	for _, at := range s.spec.ports {
		if sent := s.sent[model.ServicePortID{Namespace: name.Namespace, Name: name.Name, Protocol: at.protocol, Port: at.port}]; sent != nil {
			all = append(all, sent)
		}
	}
	return all
}

// Service returns the ports of a Service in their order, after a Flush.
func (e *Engine) Service(name types.NamespacedName) (all []Port) {
	s := e.services[name]
	if s == nil || s.spec == nil {
		return nil
	}
	p := s.spec
	for _, at := range p.ports {
		one := Port{Name: at.name, Served: s.sent[model.ServicePortID{Namespace: name.Namespace, Name: name.Name, Protocol: at.protocol, Port: at.port}]}
		chosen := e.choose(p, at, s.slices)
		for _, f := range []family{4, 6} {
			c := chosen[f]
			if c == nil {
				continue
			}
			for _, ep := range c.all {
				by := func(local bool) string {
					if local {
						return c.local(ep)
					}
					return c.selection.cluster(ep)
				}
				said := Endpoint{ServiceEndpoint: model.ServiceEndpoint{AddrPort: ep.AddrPort, Local: ep.local}, Internal: by(p.internalLocal), External: by(p.externalLocal)}
				if ep.node != noNode {
					said.Node = ep.node.Value()
				}
				one.Endpoints = append(one.Endpoints, said)
			}
		}
		all = append(all, one)
	}
	return all
}
