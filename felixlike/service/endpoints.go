package service

import (
	"maps"
	"net/netip"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/felixlike/felixlike/model"
)

// slice is the part of an EndpointSlice that a node needs. It is not modified.
type slice struct {
	ports     []slicePort
	endpoints []endpoint
}

// slicePort is a port of all endpoints of a slice. A Service's port finds it by name and protocol.
type slicePort struct {
	name     string
	protocol model.Protocol
	port     uint16
}

// endpoint is an address of an EndpointSlice. The port is set for one port of a Service.
type endpoint struct {
	netip.AddrPort
	node                               unique.Handle[string]
	local, ready, serving, terminating bool
	// forNodes and forZones are hints; nil if there are none.
	forNodes, forZones []string
}

// noNode is the node of an endpoint whose EndpointSlice names none.
var noNode unique.Handle[string]

// parseSlice returns the slice of an EndpointSlice, or nil if it has no endpoints for a proxy.
func parseSlice(s *discoveryv1.EndpointSlice, node string) *slice {
	if _, headless := s.Labels[corev1.IsHeadlessService]; headless || s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	p := &slice{}
	for _, sp := range s.Ports {
		if sp.Name == nil || sp.Port == nil || *sp.Port == 0 {
			continue
		}
		protocol := model.TCP
		if sp.Protocol != nil {
			var err error
			if protocol, err = model.ParseProtocol(string(*sp.Protocol)); err != nil {
				continue
			}
		}
		p.ports = append(p.ports, slicePort{*sp.Name, protocol, uint16(*sp.Port)})
	}
	for _, e := range s.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		// The API deprecates more addresses than one, which have no defined meaning.
		a, err := netip.ParseAddr(e.Addresses[0])
		if err != nil {
			continue
		}
		is := func(b *bool, unset bool) bool { return b == nil && unset || b != nil && *b }
		next := endpoint{
			AddrPort: netip.AddrPortFrom(a.Unmap(), 0), ready: is(e.Conditions.Ready, true), serving: is(e.Conditions.Serving, true), terminating: is(e.Conditions.Terminating, false),
		}
		if e.NodeName != nil {
			next.node, next.local = unique.Make(*e.NodeName), *e.NodeName == node && node != ""
		}
		if e.Hints != nil {
			for _, h := range e.Hints.ForNodes {
				next.forNodes = append(next.forNodes, h.Name)
			}
			for _, h := range e.Hints.ForZones {
				next.forZones = append(next.forZones, h.Name)
			}
		}
		p.endpoints = append(p.endpoints, next)
	}
	return p
}

// endpointsOf returns the endpoints of a port that its Service may lead to, by family.
func (e *Engine) endpointsOf(p *spec, all map[string]*slice, at port) map[family][]endpoint {
	found := endpointsOf(all, at)
	for f := range found {
		found[f] = slices.DeleteFunc(found[f], func(ep endpoint) bool { return e.leftOut(p, at, ep) != "" })
	}
	return found
}

// leftOut says why a Service may not lead to an endpoint; "" if it may.
func (e *Engine) leftOut(p *spec, at port, ep endpoint) string {
	switch {
	case e.reaches == nil:
		return ""
	case at.protocol == model.UDP && slices.Contains(model.TunnelPorts(), ep.Port()):
		return "its port is one of a tunnel, whose packets have the address of a node"
	case !e.reaches(p.name.Namespace, ep.Addr()):
		return "it belongs to no pod that the project of the Service reaches"
	}
	return ""
}

// unreached returns a problem if endpoints of a port are left out.
func (e *Engine) unreached(p *spec, at port, all map[string]*slice) []model.Problem {
	for _, found := range endpointsOf(all, at) {
		for _, ep := range found {
			if why := e.leftOut(p, at, ep); why != "" {
				return []model.Problem{p.newProblem("", "endpoint %s is left out: %s", ep.Addr(), why)}
			}
		}
	}
	return nil
}

// endpointsOf returns the endpoints of a port, by family, sorted and each once: while an endpoint moves from slice to slice, both have it.
func endpointsOf(all map[string]*slice, at port) map[family][]endpoint {
	found := map[netip.AddrPort]endpoint{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		for _, sp := range s.ports {
			if sp.name != at.name || sp.protocol != at.protocol {
				continue
			}
			for _, e := range s.endpoints {
				e.AddrPort = netip.AddrPortFrom(e.Addr(), sp.port)
				if old, exists := found[e.AddrPort]; !exists || e.better(old) {
					found[e.AddrPort] = e
				}
			}
		}
	}
	byFamily := map[family][]endpoint{}
	for _, a := range slices.SortedFunc(maps.Keys(found), netip.AddrPort.Compare) {
		f := familyOf(a.Addr())
		byFamily[f] = append(byFamily[f], found[a])
	}
	return byFamily
}

func (e endpoint) better(o endpoint) bool {
	if e.local != o.local {
		return e.local
	}
	if e.ready != o.ready {
		return e.ready
	}
	return e.serving && !o.serving
}

// draining reports whether an endpoint still serves while it ends.
func (e endpoint) draining() bool { return !e.ready && e.serving && e.terminating }

// selection says which endpoints of one family a node uses: those that are ready, else those that still serve while they end.
type selection struct {
	node, zone string
	// byNode and byZone report that all ready endpoints have hints of that kind, one of them for this node.
	byNode, byZone bool
	// ready, localReady and any report that there are such endpoints, anywhere and on this node. any counts draining ones.
	ready, localReady, any bool
}

func newSelection(all []endpoint, node, zone string) selection {
	s := selection{node: node, zone: zone}
	nodes, zones, forNode, forZone := true, true, false, false
	for _, e := range all {
		s.any = s.any || e.ready || e.draining()
		if !e.ready {
			continue
		}
		s.ready, s.localReady = true, s.localReady || e.local
		nodes, zones = nodes && len(e.forNodes) > 0, zones && len(e.forZones) > 0
		forNode, forZone = forNode || slices.Contains(e.forNodes, node), forZone || slices.Contains(e.forZones, zone)
	}
	s.byNode = nodes && forNode
	s.byZone = !s.byNode && zones && forZone
	return s
}

// Reasons why an endpoint is not used.
const (
	notReady    = "not ready"
	terminating = "terminating"
	otherNode   = "other node"
	otherZone   = "other zone"
	notLocal    = "policy Local"
)

// cluster says why an endpoint is not used with traffic policy Cluster; "" if it is.
func (s selection) cluster(e endpoint) string {
	switch {
	case !e.ready:
		return e.unready(s.ready)
	case s.byNode && !slices.Contains(e.forNodes, s.node):
		return otherNode
	case s.byZone && !slices.Contains(e.forZones, s.zone):
		return otherZone
	}
	return ""
}

// local says why an endpoint is not used with traffic policy Local; "" if it is.
func (s selection) local(e endpoint) string {
	switch {
	case !e.local:
		return notLocal
	case !e.ready:
		return e.unready(s.localReady)
	}
	return ""
}

// unready says why an endpoint that is not ready is not used; others reports that ready ones are.
func (e endpoint) unready(others bool) string {
	switch {
	case e.draining() && !others:
		return ""
	case e.terminating:
		return terminating
	}
	return notReady
}

// used returns the endpoints for which why returns no reason.
func used(all []endpoint, why func(endpoint) string) []model.ServiceEndpoint {
	var found []model.ServiceEndpoint
	for _, e := range all {
		if why(e) == "" {
			found = append(found, model.ServiceEndpoint{AddrPort: e.AddrPort, Local: e.local})
		}
	}
	return found
}
