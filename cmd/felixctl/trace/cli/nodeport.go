package cli

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// The node ports that an API server gives by default.
const (
	firstNodePort = 30000
	lastNodePort  = 32767
)

// answerNodePort answers a question about a NodePort that kube-proxy translates, of a Service that the command was given. It returns nothing if
// it is not about one.
func (w *world) answerNodePort(ctx context.Context, q *query, from end) ([]*result, error) {
	to, err := findEnd(w.options.to, w.Objects, q.services)
	s, at := q.nodePort()
	if err != nil || s == nil || to.pod != nil || to.service != nil { // the error is said later
		return nil, nil
	}
	n := w.translator(from, to)
	all, err := servicesOf(ctx, n)
	if err != nil || all.Proxy {
		return nil, err
	}
	switch local := slices.ContainsFunc(to.addrs, func(a netip.Addr) bool { return slices.Contains(n.Model.HostAddresses, a) }); {
	case !local && w.hostOf(to) != "":
		return nil, fmt.Errorf("--to: %d/%s is a node port of %s/%s, and %s was not asked: trace there", q.port.number, q.port.protocol, s.Namespace, s.Name, to.text)
	case !local:
		return nil, nil
	}
	f, err := q.family(from, to)
	if err != nil {
		return nil, err
	}
	source, err := from.address(f)
	if err != nil {
		return nil, err
	}
	frontend := control.ServiceFrontend{Kind: "nodePort", Address: netip.IPv4Unspecified(), Port: q.port.number}
	if f == model.IPv6 {
		frontend.Address = netip.IPv6Unspecified()
	}
	p := &proxied{n, control.Service{Namespace: s.Namespace, Name: s.Name}, control.ServicePort{Protocol: q.port.protocol, Port: uint16(at.Port)}, frontend}
	if r, err := w.beforeDNAT(q, from, p, source); err != nil || r != nil {
		return []*result{r}, err
	}
	targets, err := endpoints(s, port{protocol: q.port.protocol, number: p.port.Port}, w.Objects)
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && !inCluster(n, source) {
		targets = slices.DeleteFunc(targets, func(t target) bool { return t.pod.Spec.NodeName != n.Name })
	}
	if len(targets) == 0 {
		destination, _ := to.address(f) // q.family has found it
		return []*result{{
			From: from.text, To: w.options.to, Service: p.name(), Verdict: denied,
			Why: fmt.Sprintf("kube-proxy on %s drops it: policy Local, and %s has no endpoint on this node", n.Name, p.name()),
			Packet: trace.Packet{
				Source: source, Destination: destination, Protocol: p.port.Protocol, SourcePort: trace.DefaultSourcePort, Port: frontend.Port, Conn: q.conn,
			},
		}}, nil
	}
	return w.translated(ctx, q, from, p, f, targets)
}

// translated traces the packet to each endpoint to which kube-proxy may lead it.
func (w *world) translated(ctx context.Context, q *query, from end, p *proxied, f model.Family, targets []target) (results []*result, err error) {
	note := fmt.Sprintf("kube-proxy on %s leads %s to one of the endpoints, by chance", p.node.Name, p)
	for _, t := range targets {
		a, err := t.address(f)
		if err != nil {
			continue // an endpoint of the other family
		}
		r, err := w.ledTo(ctx, q, from, p, netip.AddrPortFrom(a, t.port), note)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("--to: service %s has no endpoint with an IPv%s address", p.name(), f)
	}
	return results, nil
}

// nodePort returns the Service, of those that the command was given, that has the port of the question as a NodePort. It returns nil if none has.
func (q *query) nodePort() (*corev1.Service, corev1.ServicePort) {
	for _, s := range q.services {
		for _, at := range s.Spec.Ports {
			if at.NodePort != 0 && at.NodePort == int32(q.port.number) && protocolOf(at.Protocol) == q.port.protocol {
				return s, at
			}
		}
	}
	return nil, corev1.ServicePort{}
}

// hostOf returns the node whose address an end is, or "".
func (w *world) hostOf(e end) string {
	for _, a := range e.addrs {
		if name := w.HostAt(a); name != "" {
			return name
		}
	}
	return ""
}

// proxyNotes says what the answer does not have about the policies of nodes if kube-proxy translates the packet.
func (w *world) proxyNotes(ctx context.Context, q *query, from, to end) ([]string, error) {
	all, err := servicesOf(ctx, w.translator(from, to))
	if err != nil || all.Proxy {
		return nil, err
	}
	preDNAT := slices.ContainsFunc(w.Nodes, func(n *cluster.Node) bool {
		return n.Model.HostPolicies != nil && !n.Model.HostPolicies.PreDNAT.Empty()
	})
	switch {
	case to.service != nil:
		if preDNAT && from.pod == nil && w.hostOf(from) == "" {
			return []string{"policies for nodes judge packets from outside before DNAT, at the address that the client uses, and were not asked here: trace to the node and its node port"}, nil
		}
	case q.port.protocol.IsICMP() || q.port.number < firstNodePort || q.port.number > lastNodePort:
	case slices.ContainsFunc(to.addrs, func(a netip.Addr) bool { return w.HostWithPolicy(a) != "" }):
		return []string{fmt.Sprintf("a NodePort of kube-proxy is translated before this: if %d/%s is one, policies before DNAT and those of its endpoints decide; %s", q.port.number, q.port.protocol, servicesHint)}, nil
	}
	return nil, nil
}
