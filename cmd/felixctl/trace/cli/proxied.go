package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/servicelist"
	"github.com/felixlike/felixlike/internal/socketapi"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
)

// proxied is a Service's address to which an agent leads (serviceProxy: full).
type proxied struct {
	node     *cluster.Node
	service  control.Service
	port     control.ServicePort
	frontend control.ServiceFrontend
}

// String returns "clusterIP 10.96.0.1:80/tcp".
func (p *proxied) String() string {
	at := netip.AddrPortFrom(p.frontend.Address, p.frontend.Port).String()
	if p.frontend.Address.IsUnspecified() {
		at = fmt.Sprint(p.frontend.Port)
	}
	return fmt.Sprintf("%s %s/%s", p.frontend.Kind, at, p.port.Protocol)
}

// answerProxied answers a question about a Service that the agents serve, from the table of the node that translates the packet. It returns
// nothing if it is not about one.
func (w *world) answerProxied(ctx context.Context, q *query, from end) ([]*result, error) {
	p, err := w.findProxied(ctx, q, from)
	if err != nil || p == nil {
		return nil, err
	}
	f := model.FamilyOf(p.frontend.Address)
	source, err := from.address(f)
	if err != nil {
		return nil, err
	}
	elements, err := p.node.Services(f)
	if err != nil {
		return nil, err
	}
	outside := !ofNode(p.node, source)
	if r, err := w.beforeDNAT(q, from, p, source); err != nil || r != nil {
		return []*result{r}, err
	}
	lead, found := elements.Lead(source, outside, netip.AddrPortFrom(p.frontend.Address, p.frontend.Port), p.port.Protocol)
	nothing := func(why string) *result {
		return &result{From: from.text, To: w.options.to, Service: p.name(), Verdict: denied, Why: why, Packet: trace.Packet{
			Source: source, Destination: p.frontend.Address, Protocol: p.port.Protocol, SourcePort: trace.DefaultSourcePort, Port: p.frontend.Port, Conn: q.conn,
		}}
	}
	on := fmt.Sprintf("the table of Services on %s", p.node.Name)
	switch {
	case !found:
		r := nothing(fmt.Sprintf("%s does not have %s", on, p))
		r.Disagreement = r.Why
		if r.Because = w.Because(r.Packet); r.Because == "" && len(p.service.Problems) > 0 {
			r.Because = p.service.Problems[0].Error()
		}
		return []*result{r}, nil
	case lead.Barred:
		return []*result{nothing(fmt.Sprintf("%s drops it: %s is in no source range of %s", on, source, p))}, nil
	case lead.Refused:
		return []*result{nothing(fmt.Sprintf("%s refuses it: %s has no endpoint", on, p))}, nil
	case lead.NoPort:
		return []*result{nothing(fmt.Sprintf("%s refuses it: %s has no port %d/%s", on, p.name(), p.frontend.Port, p.port.Protocol))}, nil
	case lead.Silent:
		return []*result{nothing(fmt.Sprintf("%s drops it: policy Local, and %s has no endpoint on this node", on, p))}, nil
	}
	return w.led(ctx, q, from, p, lead, outside)
}

// beforeDNAT asks the policies of the node before DNAT. It returns nothing if the packet goes on to the table of Services.
func (w *world) beforeDNAT(q *query, from end, p *proxied, source netip.Addr) (*result, error) {
	at := p.frontend.Address
	toNode := p.frontend.Kind == "nodePort"
	if toNode {
		i := slices.IndexFunc(p.node.Model.HostAddresses, func(a netip.Addr) bool { return model.FamilyOf(a) == model.FamilyOf(at) && !a.IsLoopback() })
		if i < 0 {
			return nil, nil
		}
		at = p.node.Model.HostAddresses[i]
	}
	if slices.Contains(p.node.Model.HostAddresses, source) || w.NodeOf(source) == p.node.Name && !toNode {
		return nil, nil // not judged
	}
	r := &result{From: from.text, To: w.options.to, Service: p.name(), Packet: trace.Packet{
		Source: source, Destination: at, Protocol: p.port.Protocol, SourcePort: trace.DefaultSourcePort, Port: p.frontend.Port, Conn: q.conn,
	}}
	decision, path, err := w.BeforeDNAT(r.Packet, p.node)
	through := path != nil && path.Fate.Through()
	if err != nil || through && decision.Allowed {
		return nil, err
	}
	r.Programmed = []programmed{{Backend: p.node.Backend, Path: path}}
	r.Verdict, r.Why = denied, fmt.Sprintf("before DNAT on %s: %s %s denies it", p.node.Name, decision.Policy, model.TitledRule(decision.Rule, decision.Title))
	if through {
		r.Verdict = allowed
	}
	if through != decision.Allowed {
		r.Why = path.Opinion().Why
		words := map[bool]string{true: "allow", false: "deny"}
		r.Disagreement = fmt.Sprintf("before DNAT on %s, the policies of the node %s the packet, and the programmed rules %s it", p.node.Name, words[decision.Allowed], words[through])
		r.Because = w.Because(r.Packet)
	}
	return r, nil
}

// led traces the packet to each endpoint to which the table may lead it.
func (w *world) led(ctx context.Context, q *query, from end, p *proxied, lead managers.ServiceLead, outside bool) (results []*result, err error) {
	which := "one of %d endpoints, by chance"
	if lead.Affinity > 0 {
		which = "one of %d endpoints, which the client keeps for " + lead.Affinity.String()
	}
	note := fmt.Sprintf("%s is led by the table of Services on %s to "+which, p, p.node.Name, len(lead.Endpoints))
	for _, at := range lead.Endpoints {
		r, err := w.ledTo(ctx, q, from, p, at, note)
		if err != nil {
			return nil, err
		}
		if !p.wants(at, outside) && r.Disagreement == "" {
			r.Disagreement = fmt.Sprintf("%s leads to %s, which is no endpoint for this client as the agent sees it (felixctl services %s)", p, at, p.name())
			r.Because = w.Because(r.Packet)
		}
		results = append(results, r)
	}
	return results, nil
}

// ledTo traces the packet to one endpoint, with the source that it has there.
func (w *world) ledTo(ctx context.Context, q *query, from end, p *proxied, at netip.AddrPort, note string) (*result, error) {
	client, notes := from, []string{note}
	if own, masqueraded := masquerades(p.node, w.Objects, from, at.Addr()); masqueraded {
		client = own
		if a, err := own.address(model.FamilyOf(at.Addr())); err == nil {
			notes = append(notes, fmt.Sprintf("the endpoint sees %s in place of %s: its answer has to come back to this node", a, from.text))
		}
	}
	r, err := w.result(ctx, q, client, target{addressEnd(at.Addr(), w.Objects, nil), at.Port()})
	if err != nil {
		return nil, err
	}
	r.From, r.Service, r.Notes = from.text, p.name(), append(notes, r.Notes...)
	return r, nil
}

func (p *proxied) name() string { return p.service.Namespace + "/" + p.service.Name }

// wants reports whether the agent uses an endpoint for the clients of the frontend.
func (p *proxied) wants(at netip.AddrPort, outside bool) bool {
	return slices.ContainsFunc(p.port.Endpoints, func(e control.ServiceEndpoint) bool {
		switch {
		case e.Address != at:
			return false
		case p.frontend.Kind == "clusterIP":
			return e.Inside == control.EndpointUsed
		case outside:
			return e.Outside == control.EndpointUsed
		}
		return true // policy Cluster, whatever the Service's internal one is
	})
}

// servicesOf returns how a node serves Services: not at all, if its agent is of a release before Services.
func servicesOf(ctx context.Context, n *cluster.Node) (control.Services, error) {
	all, err := n.Agent.Services(ctx, "")
	var refused *socketapi.Error
	if errors.As(err, &refused) && refused.Code == socketapi.UnknownPath {
		return control.Services{}, nil
	}
	return all, err
}

// findProxied finds the Service that the question is about, and the node that translates its packets.
func (w *world) findProxied(ctx context.Context, q *query, from end) (*proxied, error) {
	name, isService := servicelist.Named(w.options.to)
	if !isService {
		name = w.options.to
		to, err := findEnd(name, w.Objects, nil)
		switch {
		case err == nil && to.pod != nil:
			return nil, nil
		case err == nil:
			return w.proxiedAddress(ctx, q, from, to)
		case strings.Count(name, "/") != 1:
			return nil, nil // the error is said later
		}
	}
	n := w.translator(from, end{})
	all, err := servicesOf(ctx, n)
	if err != nil || !all.Proxy {
		return nil, err
	}
	for _, s := range all.Services {
		if s.Namespace+"/"+s.Name != name {
			continue
		}
		p, err := q.portOf(s)
		if err != nil {
			return nil, err
		}
		for _, f := range p.Frontends {
			if _, err := from.address(model.FamilyOf(f.Address)); err == nil && f.Kind == "clusterIP" && q.wantsFamily(f.Address) {
				return &proxied{n, s, p, f}, nil
			}
		}
		return nil, fmt.Errorf("--to: service %s has no cluster IP of a family of %s", name, from.text)
	}
	return nil, nil
}

func (q *query) wantsFamily(a netip.Addr) bool {
	return q.options.family == "" || q.options.family == model.FamilyOf(a).String()
}

// proxiedAddress finds the Service of an address and port.
func (w *world) proxiedAddress(ctx context.Context, q *query, from, to end) (*proxied, error) {
	n := w.translator(from, to)
	all, err := servicesOf(ctx, n)
	if err != nil || !all.Proxy {
		return nil, err
	}
	local := slices.ContainsFunc(to.addrs, func(a netip.Addr) bool { return slices.Contains(n.Model.HostAddresses, a) })
	var (
		other  error
		noPort *proxied // of a cluster IP
	)
	for _, s := range all.Services {
		p, err := q.portOf(s)
		for _, at := range s.Ports {
			for _, f := range at.Frontends {
				number := at.Protocol == q.port.protocol && f.Port == q.port.number
				switch {
				case f.Kind == "nodePort" && number && slices.ContainsFunc(to.addrs, func(a netip.Addr) bool { return model.FamilyOf(a) == model.FamilyOf(f.Address) && q.wantsFamily(a) }):
					if local {
						return &proxied{n, s, at, f}, nil
					}
					if w.hostOf(to) != "" { // untranslated, it would look like a packet to the node itself
						return nil, fmt.Errorf("--to: %d/%s is a node port of %s/%s, and %s was not asked: trace there", f.Port, at.Protocol, s.Namespace, s.Name, to.text)
					}
				case f.Kind == "nodePort" || !slices.Contains(to.addrs, f.Address):
				case number:
					return &proxied{n, s, at, f}, nil
				case err == nil && p.Port == at.Port && p.Protocol == at.Protocol: // by the name of the port
					return &proxied{n, s, at, f}, nil
				case local, strings.HasPrefix(to.text, "node:"):
					// An external IP that is a node's address: its other ports are the node's.
				case f.Kind == "clusterIP" && q.port.name == "" && !q.port.protocol.IsICMP():
					port := control.ServicePort{Protocol: q.port.protocol, Port: q.port.number}
					noPort = &proxied{n, s, port, control.ServiceFrontend{Kind: f.Kind, Address: f.Address, Port: q.port.number}}
				default:
					other = err
				}
			}
		}
	}
	if other != nil {
		return nil, fmt.Errorf("--to: %w", other)
	}
	return noPort, nil
}

// portOf returns the port of a Service that the question names.
func (q *query) portOf(s control.Service) (control.ServicePort, error) {
	var known []string
	for _, p := range s.Ports {
		if p.Protocol == q.port.protocol && (q.port.name != "" && p.Name == q.port.name || q.port.name == "" && p.Port == q.port.number) {
			return p, nil
		}
		known = append(known, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
	}
	return control.ServicePort{}, fmt.Errorf("service %s/%s has no such port; it has %v", s.Namespace, s.Name, known)
}

// translator returns the node whose table of Services the packet meets first: the node that has the address, or else the node of the
// source. A node whose state was read elsewhere is never chosen.
func (w *world) translator(from, to end) *cluster.Node {
	for _, e := range []end{to, from} {
		for _, n := range w.Nodes {
			if n.Elsewhere() {
				continue
			}
			for _, a := range e.addrs {
				if slices.Contains(n.Model.HostAddresses, a) || w.NodeOf(a) == n.Name {
					return n
				}
			}
		}
	}
	return w.Nodes[0]
}

// inCluster reports whether kube-proxy of a node takes a client for one inside the cluster: a pod, or the node itself.
func inCluster(n *cluster.Node, a netip.Addr) bool {
	return slices.Contains(n.Model.HostAddresses, a) || slices.ContainsFunc(n.Model.Nodes, func(o *model.Node) bool { return isPodOf(o, a) })
}

// ofNode reports whether the table of Services does: only pods of its own node are.
func ofNode(n *cluster.Node, a netip.Addr) bool {
	return slices.Contains(n.Model.HostAddresses, a) || slices.ContainsFunc(n.Model.Nodes, func(o *model.Node) bool { return o.Name == n.Name && isPodOf(o, a) })
}

func isPodOf(n *model.Node, a netip.Addr) bool {
	return slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// masquerades returns the address that an endpoint sees in place of a client that the node forwards.
func masquerades(n *cluster.Node, objects control.Objects, from end, endpoint netip.Addr) (end, bool) {
	own := slices.IndexFunc(n.Model.Nodes, func(o *model.Node) bool { return o.Name == n.Name })
	client, err := from.address(model.FamilyOf(endpoint))
	if err != nil || own < 0 || slices.Contains(n.Model.HostAddresses, client) {
		return end{}, false
	}
	here := n.Model.Nodes[own]
	if isPodOf(here, client) || isPodOf(here, endpoint) || slices.Contains(n.Model.HostAddresses, endpoint) {
		return end{}, false
	}
	if n.Model.Settings.TrafficMode != model.Encap || !slices.ContainsFunc(n.Model.Nodes, func(o *model.Node) bool { return isPodOf(o, endpoint) }) {
		e, err := nodeEnd(n.Name, objects)
		return e, err == nil
	}
	e := end{text: "node:" + n.Name} // it leaves by the gateway port
	for _, a := range n.Model.HostAddresses {
		if isPodOf(here, a) && model.FamilyOf(a) == model.FamilyOf(endpoint) {
			e.addrs = append(e.addrs, a)
		}
	}
	return e, len(e.addrs) > 0
}
