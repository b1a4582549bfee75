package cli

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/trace"
)

type services = []*corev1.Service

// Verdicts of a result.
const (
	allowed = "allowed"
	denied  = "denied"
)

// world is what was read: the nodes asked, and the objects that they go by.
type world struct {
	nodes   []*node
	objects control.Objects
	cluster *oracle.Cluster
	names   *names
	options *options
}

// trace answers the question, once for each endpoint where it is about a Service.
func (o *options) trace(ctx context.Context, q *query) ([]*result, error) {
	w, err := o.readWorld(ctx)
	if err != nil {
		return nil, err
	}
	from, err := findEnd(o.from, w.objects, q.services)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	if from.service != nil {
		return nil, fmt.Errorf("--from: %s is a Service: nothing is sent from its address", from.text)
	}
	to, err := findEnd(o.to, w.objects, q.services)
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	targets, err := q.targets(to, w)
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	var results []*result
	for _, t := range targets {
		r, err := w.result(ctx, q, from, t)
		if err != nil {
			return nil, err
		}
		if to.service != nil {
			r.Service = "Service " + to.text
		}
		results = append(results, r)
	}
	return results, nil
}

// readWorld reads the nodes and the objects.
func (o *options) readWorld(ctx context.Context) (*world, error) {
	nodes, err := o.nodes(ctx)
	if err != nil {
		return nil, err
	}
	w := &world{nodes: nodes, options: o}
	if w.objects, err = nodes[0].agent.Objects(ctx); err != nil {
		return nil, err
	}
	w.cluster = &oracle.Cluster{Nodes: w.objects.Nodes, Namespaces: w.objects.Namespaces, Pods: w.objects.Pods, Policies: w.objects.Policies}
	w.names = newNames(w.objects)
	for _, n := range nodes {
		if err := n.read(ctx); err != nil {
			return nil, err
		}
		w.names.add(n)
	}
	return w, nil
}

// targets are the ends and ports that the packet may go to.
func (q *query) targets(to end, w *world) ([]target, error) {
	if to.service != nil {
		return endpoints(to.service, q.port, w.objects)
	}
	number, err := q.port.of(to.pod, to.text)
	return []target{{to, number}}, err
}

// family chooses the address family.
func (q *query) family(from, to end) (model.Family, error) {
	switch q.options.family {
	case "4":
		return model.IPv4, nil
	case "6":
		return model.IPv6, nil
	}
	for _, f := range model.Families() {
		_, source := from.address(f)
		if _, destination := to.address(f); source == nil && destination == nil {
			return f, nil
		}
	}
	return 0, fmt.Errorf("%s and %s have no addresses of one family", from.text, to.text)
}

func (q *query) packet(from end, to target) (trace.Packet, error) {
	p := trace.Packet{Protocol: q.port.protocol, Port: to.port, SourcePort: trace.DefaultSourcePort, Conn: q.conn}
	f, err := q.family(from, to.end)
	if err != nil {
		return p, err
	}
	if p.Source, err = from.address(f); err != nil {
		return p, err
	}
	if p.Destination, err = to.address(f); err != nil {
		return p, err
	}
	if p.Protocol == model.ICMP && f == model.IPv6 {
		p.Protocol = model.ICMPv6
	}
	return p, nil
}

// result traces one packet.
func (w *world) result(ctx context.Context, q *query, from end, to target) (*result, error) {
	p, err := q.packet(from, to)
	if err != nil {
		return nil, err
	}
	r := &result{From: from.text, To: to.text, Packet: p}
	if r.Policies, err = trace.Judge(p, w.cluster, w.names); err != nil {
		return nil, err
	}
	var sites []*trace.Site
	for _, n := range w.nodes {
		sites = append(sites, n.site)
	}
	path, err := trace.Follow(p, sites, w.names)
	if err != nil {
		return nil, err
	}
	r.Programmed = []programmed{{Backend: w.nodes[0].Backend, Path: path}}
	w.verdict(r, path)
	w.notes(r, path)
	if w.options.live {
		if r.Live, err = w.sendLive(ctx, p); err != nil {
			return nil, fmt.Errorf("--live: %w", err)
		}
		w.compareLive(r, path)
	}
	if r.Disagreement != "" {
		r.Because = w.because(p)
	}
	return r, nil
}

// verdict is that of what is programmed, with the reason that people understand.
func (w *world) verdict(r *result, path *trace.Path) {
	r.Disagreement = trace.Compare(r.Policies, path)
	o := path.Opinion()
	r.Verdict, r.Why = denied, o.Why
	if o.Through {
		r.Verdict = allowed
	}
	if r.Disagreement == "" && o.Through == r.Policies.Through {
		r.Why = r.Policies.Why
	}
}

// notes say what was not looked at.
func (w *world) notes(r *result, path *trace.Path) {
	for _, end := range []struct {
		asked bool
		addr  netip.Addr
		what  string
	}{{path.Egress, r.Packet.Source, "egress"}, {path.Ingress, r.Packet.Destination, "ingress"}} {
		if node := w.nodeOf(end.addr); node != "" && !end.asked {
			r.Notes = append(r.Notes, fmt.Sprintf("%s of %s is judged on %s, which was not asked: trace there as well", end.what, end.addr, node))
		}
	}
}

// nodeOf returns the node that an address is on, or "".
func (w *world) nodeOf(a netip.Addr) string {
	for _, p := range w.objects.Pods {
		for _, ip := range p.Status.PodIPs {
			if own, err := netip.ParseAddr(ip.IP); err == nil && own.Unmap() == a && !over(p) && !p.Spec.HostNetwork {
				return p.Spec.NodeName
			}
		}
	}
	return ""
}

// because says what is known of why something is not as the policies say, or "".
func (w *world) because(p trace.Packet) string {
	for _, n := range w.nodes {
		s := n.status
		switch {
		case !s.InSync:
			return fmt.Sprintf("the agent of %s does not know everything yet", n.Name)
		case s.Programmed < s.Observed || w.objects.Revision > s.Programmed && n == w.nodes[0]:
			return fmt.Sprintf("changes wait to be programmed on %s (%d of %d): try again", n.Name, s.Programmed, s.Observed)
		case s.LastApply.Error != "":
			return fmt.Sprintf("the last apply on %s failed: %s", n.Name, s.LastApply.Error)
		}
		for _, e := range s.Endpoints {
			concerned := slices.ContainsFunc([]netip.Addr{p.Source, p.Destination}, func(a netip.Addr) bool { return slices.Contains(e.Addresses, a.String()) })
			if concerned && e.State != control.EndpointProgrammed {
				return fmt.Sprintf("pod %s/%s is %s on %s: %s", e.Namespace, e.Name, e.State, n.Name, e.Reason)
			}
		}
	}
	return ""
}
