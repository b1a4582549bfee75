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
	Service string   `json:"service"`
	Address string   `json:"address"`
	From    []string `json:"from"`
	// Nodes are those at which the packets arrive.
	Nodes []string `json:"nodes"`
	// Becomes is Allowed, Denied or KeptOpen.
	Becomes string `json:"becomes"`
	Because string `json:"because"`
}

// ServiceOf returns the addresses of a Service that clients outside the cluster use.
func ServiceOf(s *corev1.Service) control.Service {
	out := control.Service{Namespace: s.Namespace, Name: s.Name}
	for _, p := range s.Spec.Ports {
		protocol, err := model.ParseProtocol(string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
		if err != nil {
			continue // no proxy serves it
		}
		port := control.ServicePort{Protocol: protocol, Port: uint16(p.Port)}
		add := func(kind, address string, number int32) {
			if a, err := netip.ParseAddr(address); err == nil {
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

// arrivals are packets that arrive at a node from a peer, of one family.
type arrivals struct {
	node, from *end
	family     model.Family
	// inside is set if the peer is in the cluster.
	inside bool
}

func (h *hosts) arrivals(f model.Family) (all []arrivals) {
	for _, n := range h.peers {
		for _, peer := range h.peers {
			if n.node == nil {
				break
			}
			if from := peer.without(n.node); from != nil {
				all = append(all, arrivals{n, from, f, peer.node != nil || len(peer.pods) > 0})
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
		ofFamily[f], spansOf[f] = h.arrivals(f), spans(h.policies, nil, f, h.failsafe.In...)
	}
	visit := func(s control.Service, p model.Protocol, front control.ServiceFrontend) {
		f := model.FamilyOf(front.Address)
		i := slices.IndexFunc(spansOf[f], func(r model.PortRange) bool { return r.Protocol == p && r.First <= front.Port && front.Port <= r.Last })
		if front.Kind == clusterIP || i < 0 {
			return
		}
		for _, a := range ofFamily[f] {
			if a.inside && front.Kind != nodePort {
				continue // pods and nodes reach the other addresses without the policies of a node
			}
			k := key{a, spansOf[f][i]}
			got, is := known[k]
			if !is {
				got[0], got[1] = h.arrive(a, p, front.Port)
				known[k] = got
			}
			if got[0] != "" {
				out = joinService(out, ServiceChange{s.Namespace + "/" + s.Name, addressText(p, front), a.from.nodeNames(), a.node.nodeNames(), got[0], got[1]})
			}
		}
	}
	for _, s := range all {
		for _, port := range s.Ports {
			for _, front := range port.Frontends {
				visit(s, port.Protocol, front)
			}
		}
	}
	return out
}

func addressText(p model.Protocol, f control.ServiceFrontend) string {
	port := model.PortRange{Protocol: p, First: f.Port, Last: f.Port}
	if f.Kind == nodePort {
		return fmt.Sprintf("%s %s", f.Kind, port)
	}
	return fmt.Sprintf("%s %s %s", f.Kind, f.Address, port)
}

// joinService adds a change to that of the same address with the same reason.
func joinService(all []ServiceChange, c ServiceChange) []ServiceChange {
	i := slices.IndexFunc(all, func(o ServiceChange) bool {
		return o.Service == c.Service && o.Address == c.Address && o.Becomes == c.Becomes && o.Because == c.Because && slices.Equal(o.Nodes, c.Nodes)
	})
	if i < 0 {
		return append(all, c)
	}
	for _, name := range c.From {
		if !slices.Contains(all[i].From, name) {
			all[i].From = append(all[i].From, name)
		}
	}
	return all
}
