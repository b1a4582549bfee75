package preview

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// Kinds of control.ServiceFrontend.
const (
	clusterIP    = "clusterIP"
	nodePort     = "nodePort"
	externalIP   = "externalIP"
	loadBalancer = "loadBalancer"
)

// ServiceChange is an address of a Service about which the policies before DNAT of nodes would decide otherwise.
type ServiceChange struct {
	// Service is namespace/name, Address as in "nodePort tcp/30080" or "loadBalancer 192.0.2.1 tcp/80".
	Service string `json:"service"`
	Address string `json:"address"`
	// Families names the address families of the packets, as in "IPv4".
	Families []string `json:"families"`
	From     []string `json:"from"`
	// Nodes are those at which the packets arrive.
	Nodes []string `json:"nodes"`
	// Becomes is Allowed, Denied or KeptOpen.
	Becomes string `json:"becomes"`
	Because string `json:"because"`

	// inBoth is set for a NodePort of both families, at nodes with both.
	inBoth bool
}

// ServiceOf returns the addresses of a Service that clients outside the cluster use.
func ServiceOf(s *corev1.Service) control.Service {
	out := control.Service{Namespace: s.Namespace, Name: s.Name}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return out // no proxy serves it
	}
	for _, p := range s.Spec.Ports {
		protocol, err := model.ParseProtocol(string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
		if err != nil {
			continue // no proxy serves it
		}
		port := control.ServicePort{Protocol: protocol, Port: uint16(p.Port)}
		add := func(kind, address string, number int32) {
			a, err := netip.ParseAddr(address)
			if err == nil && (len(s.Spec.IPFamilies) == 0 || slices.Contains(s.Spec.IPFamilies, corev1.IPFamily(familyText(model.FamilyOf(a))))) {
				port.Frontends = append(port.Frontends, control.ServiceFrontend{Kind: kind, Address: a, Port: uint16(number)})
			}
		}
		if p.NodePort != 0 {
			for _, unspecified := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
				add(nodePort, unspecified.String(), p.NodePort)
			}
		}
		for _, a := range s.Spec.ExternalIPs {
			add(externalIP, a, p.Port)
		}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			if ingress.IPMode == nil || *ingress.IPMode == corev1.LoadBalancerIPModeVIP {
				add(loadBalancer, ingress.IP, p.Port)
			}
		}
		out.Ports = append(out.Ports, port)
	}
	return out
}

// beforeDNAT reports whether the policy is one of nodes before DNAT.
func (p anyPolicy) beforeDNAT() bool {
	return p.forNodes() && p.antrea.GetAnnotations()[model.PreDNATAnnotation] == "true"
}

// concernsServices reports whether policies before DNAT may decide otherwise: they, or tiers and groups that they may refer to, change.
func (c PolicyChange) concernsServices() bool {
	return c.What != Same && slices.ContainsFunc([]anyPolicy{c.before, c.after}, func(p anyPolicy) bool { return p.beforeDNAT() || !p.isPolicy() })
}

// arrivals are packets that arrive at a node from a peer, of one family.
type arrivals struct {
	node, from *end
	family     model.Family
	// inside is set if the peer is in the cluster.
	inside bool
}

// arrivals returns the packets that arrive at a class of nodes.
func (h *hosts) arrivals(at *end, f model.Family) (all []arrivals) {
	for _, peer := range h.peers {
		if from := peer.without(at.node); from != nil {
			all = append(all, arrivals{at, from, f, peer.node != nil || len(peer.pods) > 0})
		}
	}
	return all
}

// owners returns the nodes by the addresses in their status.
func (h *hosts) owners() map[netip.Addr]*corev1.Node {
	all := map[netip.Addr]*corev1.Node{}
	for _, e := range h.peers {
		for _, n := range e.alike {
			for _, has := range n.Status.Addresses {
				if a, err := netip.ParseAddr(has.Address); err == nil {
					all[a] = n
				}
			}
		}
	}
	return all
}

// arrive compares what the policies before DNAT decide about packets to a port. They do not ask for the address.
func (h *hosts) arrive(a arrivals, p model.Protocol, port uint16) (becomes, because string) {
	source, _ := a.from.representative(a.family, func(*corev1.Pod) bool { return true })
	at := nodeAddress(a.node.node, a.family)
	if !source.IsValid() || !at.IsValid() {
		return "", ""
	}
	packet := oracle.Packet{Source: source, Destination: at, Protocol: p, Port: port}
	return h.compare(func(c *oracle.Cluster) oracle.Decision { return c.DecidePreDNAT(a.node.node, packet) })
}

// services returns the addresses of Services about which the policies before DNAT would decide otherwise.
func (h *hosts) services(all []control.Service) (out []ServiceChange) {
	// All ports of a span have one decision.
	type key struct {
		arrivals
		span model.PortRange
	}
	known := map[key][2]string{}
	ofFamily, spansOf := map[model.Family][]arrivals{}, map[model.Family][]model.PortRange{}
	for _, f := range h.families {
		spansOf[f] = spans(h.policies, nil, f, h.failsafe.Ranges()...)
		for _, e := range h.peers {
			if e.node != nil {
				ofFamily[f] = append(ofFamily[f], h.arrivals(e, f)...)
			}
		}
	}
	owners, ofNode := h.owners(), map[netip.Addr][]arrivals{}
	visit := func(s control.Service, p model.Protocol, front control.ServiceFrontend, inBoth bool) {
		f := model.FamilyOf(front.Address)
		i := slices.IndexFunc(spansOf[f], func(r model.PortRange) bool { return r.Protocol == p && r.First <= front.Port && front.Port <= r.Last })
		if front.Kind == clusterIP || i < 0 {
			return
		}
		arrive, atNode := ofFamily[f], front.Kind == nodePort
		if owner := owners[front.Address]; owner != nil {
			if ofNode[front.Address] == nil {
				ofNode[front.Address] = h.arrivals(nodeClass([]*corev1.Node{owner}), f)
			}
			arrive, atNode = ofNode[front.Address], true
		}
		for _, a := range arrive {
			if a.inside && !atNode {
				continue // pods and nodes reach the other addresses without the policies of a node
			}
			k := key{a, spansOf[f][i]}
			got, is := known[k]
			if !is {
				got[0], got[1] = h.arrive(a, p, front.Port)
				known[k] = got
			}
			if got[0] != "" {
				out = joinService(out, ServiceChange{s.Namespace + "/" + s.Name, addressText(p, front), []string{familyText(f)}, a.from.nodeNames(), a.node.nodeNames(), got[0], got[1], inBoth})
			}
		}
	}
	for _, s := range all {
		for _, port := range s.Ports {
			nodePorts := 0
			for _, front := range port.Frontends {
				if f := model.FamilyOf(front.Address); front.Kind == nodePort && slices.ContainsFunc(ofFamily[f], func(a arrivals) bool { return nodeAddress(a.node.node, f).IsValid() }) {
					nodePorts++
				}
			}
			for _, front := range port.Frontends {
				visit(s, port.Protocol, front, front.Kind == nodePort && nodePorts > 1)
			}
		}
	}
	return joined(out, func(a, b ServiceChange) bool { return a.alike(b) && slices.Equal(a.From, b.From) },
		func(a *ServiceChange, b ServiceChange) { a.Families = union(a.Families, b.Families) })
}

func familyText(f model.Family) string { return "IPv" + f.String() }

func addressText(p model.Protocol, f control.ServiceFrontend) string {
	port := model.PortRange{Protocol: p, First: f.Port, Last: f.Port}
	if f.Kind == nodePort {
		return fmt.Sprintf("%s %s", f.Kind, port)
	}
	return fmt.Sprintf("%s %s %s", f.Kind, f.Address, port)
}

// alike reports whether two changes differ in clients and families only.
func (c ServiceChange) alike(o ServiceChange) bool {
	return o.Service == c.Service && o.Address == c.Address && o.Becomes == c.Becomes && o.Because == c.Because && slices.Equal(o.Nodes, c.Nodes)
}

// joinService adds the clients of a change to a change that has other clients only.
func joinService(all []ServiceChange, c ServiceChange) []ServiceChange {
	i := slices.IndexFunc(all, func(o ServiceChange) bool { return o.alike(c) && slices.Equal(o.Families, c.Families) })
	if i < 0 {
		return append(all, c)
	}
	all[i].From = union(all[i].From, c.From)
	return all
}

// text is the address, with the family if the change does not hold for all of them.
func (c ServiceChange) text() string {
	if c.inBoth && len(c.Families) == 1 {
		return c.Address + " (" + c.Families[0] + ")"
	}
	return c.Address
}
