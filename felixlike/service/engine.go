package service

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/model"
)

// Engine turns the Services of a cluster into the ports that one node serves. It is not safe for concurrent use.
type Engine struct {
	node, zone string
	services   map[types.NamespacedName]*service
	// serviceOf has the Service of each known EndpointSlice.
	serviceOf map[types.NamespacedName]types.NamespacedName
	claims    *claims
	// nodes are the addresses of nodes.
	nodes map[string][]netip.Addr
	dirty map[types.NamespacedName]bool
	// problems are those of the Services that have some.
	problems map[types.NamespacedName][]model.Problem
	health   map[types.NamespacedName]model.ServiceHealth
	// reaches reports whether a Service of a namespace may lead to an address; nil if to all.
	reaches func(namespace string, a netip.Addr) bool
	// prefixes are those that cluster IPs of IPv4 have to be in; nil if they may be anywhere.
	prefixes []netip.Prefix
	// healthChanged reports that Flush has to send health, as the first one does.
	healthChanged bool
}

// service is a Service, or the EndpointSlices of one that is not known or not served.
type service struct {
	// spec is nil if the Service is not served.
	spec   *spec
	slices map[string]*slice
	// sent are the ports as Flush has returned them.
	sent map[model.ServicePortID]*model.ServicePort
}

// New returns an engine for a node.
func New(node string) *Engine {
	return &Engine{
		node: node, services: map[types.NamespacedName]*service{}, serviceOf: map[types.NamespacedName]types.NamespacedName{}, claims: newClaims(), nodes: map[string][]netip.Addr{},
		dirty: map[types.NamespacedName]bool{}, problems: map[types.NamespacedName][]model.Problem{}, health: map[types.NamespacedName]model.ServiceHealth{}, healthChanged: true,
	}
}

// Limit has the engine leave out the endpoints that Services of a namespace may not lead to. It is called before all objects come.
func (e *Engine) Limit(reaches func(namespace string, a netip.Addr) bool) { e.reaches = reaches }

// SetPrefixes has the engine serve cluster IPs of IPv4 in these prefixes only.
func (e *Engine) SetPrefixes(all []netip.Prefix) {
	e.prefixes = all
	for name := range e.services {
		e.dirty[name] = true
	}
}

// Reconsider has the engine ask again about the Services of namespaces with endpoints for which changed returns true.
func (e *Engine) Reconsider(changed func(namespace string, a netip.Addr) bool) {
	for name, s := range e.services {
		for _, one := range s.slices {
			if slices.ContainsFunc(one.endpoints, func(ep endpoint) bool { return changed(name.Namespace, ep.Addr()) }) {
				e.dirty[name] = true
				break
			}
		}
	}
}

// SetService takes a Service that is new or changed.
func (e *Engine) SetService(s *corev1.Service) {
	e.setSpec(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, parse(s))
}

// DeleteService takes a Service that is gone.
func (e *Engine) DeleteService(namespace, name string) {
	e.setSpec(types.NamespacedName{Namespace: namespace, Name: name}, nil)
}

func (e *Engine) setSpec(name types.NamespacedName, p *spec) {
	s := e.service(name)
	if s.spec != nil {
		e.affect(e.claims.remove(s.spec))
	}
	if p != nil {
		e.affect(e.claims.add(p))
	}
	s.spec = p
	e.dirty[name] = true
}

func (e *Engine) affect(all []*spec) {
	for _, p := range all {
		e.dirty[p.name] = true
	}
}

func (e *Engine) service(name types.NamespacedName) *service {
	s := e.services[name]
	if s == nil {
		s = &service{slices: map[string]*slice{}}
		e.services[name] = s
	}
	return s
}

// SetEndpointSlice takes an EndpointSlice that is new or changed.
func (e *Engine) SetEndpointSlice(s *discoveryv1.EndpointSlice) {
	e.DeleteEndpointSlice(s.Namespace, s.Name)
	of, parsed := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}, parseSlice(s, e.node)
	if of.Name == "" || parsed == nil {
		return
	}
	e.serviceOf[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = of
	e.service(of).slices[s.Name] = parsed
	e.dirty[of] = true
}

// DeleteEndpointSlice takes an EndpointSlice that is gone.
func (e *Engine) DeleteEndpointSlice(namespace, name string) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if of, known := e.serviceOf[key]; known {
		delete(e.serviceOf, key)
		delete(e.services[of].slices, name)
		e.dirty[of] = true
	}
}

// SetNode takes a node that is new or changed.
func (e *Engine) SetNode(n *corev1.Node) {
	var all []netip.Addr
	for _, a := range n.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil && !slices.Contains(all, addr.Unmap()) {
			all = append(all, addr.Unmap())
		}
	}
	e.setNodeAddresses(n.Name, all)
	if zone := n.Labels[corev1.LabelTopologyZone]; n.Name == e.node && zone != e.zone {
		e.zone = zone
		for name := range e.services {
			e.dirty[name] = true
		}
	}
}

// DeleteNode takes a node that is gone. This node keeps its zone.
func (e *Engine) DeleteNode(name string) { e.setNodeAddresses(name, nil) }

func (e *Engine) setNodeAddresses(name string, all []netip.Addr) {
	if slices.Equal(e.nodes[name], all) {
		return
	}
	for _, a := range e.nodes[name] {
		left := slices.DeleteFunc(e.claims.nodes[a], func(n string) bool { return n == name })
		if e.claims.nodes[a] = left; len(left) == 0 {
			delete(e.claims.nodes, a)
		}
		e.affect(e.claims.external[a])
	}
	if e.nodes[name] = all; len(all) == 0 {
		delete(e.nodes, name)
	}
	for _, a := range all {
		e.claims.nodes[a] = append(e.claims.nodes[a], name)
		e.affect(e.claims.external[a])
	}
}

// Flush returns the changes since the last call: first the removed ports, then ports that lose a frontend, then the others, each sorted. So a frontend
// leaves a port before another port gets it, unless a port that loses one also gets one from another such port.
func (e *Engine) Flush() []model.Update {
	var removed []model.ServicePortID
	var losing, others []*model.ServicePort
	for name := range e.dirty {
		s := e.services[name]
		now := e.evaluate(name, s)
		for id, old := range s.sent {
			if now[id] == nil {
				removed = append(removed, id)
			} else if equal(old, now[id]) {
				now[id] = old
			} else if loses(old, now[id]) {
				losing = append(losing, now[id])
			} else {
				others = append(others, now[id])
			}
		}
		for id, p := range now {
			if s.sent[id] == nil {
				others = append(others, p)
			}
		}
		s.sent = now
		if s.spec == nil && len(s.slices) == 0 {
			delete(e.services, name)
		}
	}
	e.dirty = map[types.NamespacedName]bool{} // cleared, it would keep the room of the first load
	var all []model.Update
	slices.SortFunc(removed, compareIDs)
	for _, id := range removed {
		all = append(all, model.ServicePortRemove{ID: id})
	}
	for _, ports := range [][]*model.ServicePort{losing, others} {
		slices.SortFunc(ports, func(a, b *model.ServicePort) int { return compareIDs(a.ID, b.ID) })
		for _, p := range ports {
			all = append(all, model.ServicePortUpdate{Port: p})
		}
	}
	if e.healthChanged {
		e.healthChanged = false
		u := model.ServiceHealthUpdate{All: slices.Collect(maps.Values(e.health))}
		slices.SortFunc(u.All, func(a, b model.ServiceHealth) int {
			return cmp.Or(cmp.Compare(a.Port, b.Port), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
		})
		all = append(all, u)
	}
	return all
}

// Problems returns the problems of Services after the last Flush, sorted by Service.
func (e *Engine) Problems() (all []model.Problem) {
	for _, name := range slices.SortedFunc(maps.Keys(e.problems), compareNames) {
		all = append(all, e.problems[name]...)
	}
	return all
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func compareIDs(a, b model.ServicePortID) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

// equal reports whether two ports are the same.
func equal(a, b *model.ServicePort) bool {
	return a.ID == b.ID && a.Affinity == b.Affinity && a.Masquerade == b.Masquerade && slices.Equal(a.Serving, b.Serving) && slices.Equal(a.Known, b.Known) && slices.EqualFunc(a.Frontends, b.Frontends, func(x, y model.Frontend) bool {
		return sameFrontend(x, y) && x.Empty == y.Empty && (x.Sources == nil) == (y.Sources == nil) && slices.Equal(x.Sources, y.Sources) &&
			slices.Equal(x.Endpoints, y.Endpoints) && slices.Equal(x.Inside, y.Inside)
	})
}

func sameFrontend(a, b model.Frontend) bool {
	return a.Kind == b.Kind && a.Addr == b.Addr && a.Port == b.Port
}

// loses reports whether a port has a frontend no more.
func loses(old, now *model.ServicePort) bool {
	return slices.ContainsFunc(old.Frontends, func(f model.Frontend) bool {
		return !slices.ContainsFunc(now.Frontends, func(o model.Frontend) bool { return o.Addr == f.Addr && o.Port == f.Port })
	})
}
