package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// Verdicts of a result.
const (
	allowed = "allowed"
	denied  = "denied"
)

// readings bounds the readings of the nodes. A contradiction causes another one:
// something may have changed during the first.
const readings = 3

// trace answers the question, once for each endpoint where it is about a Service.
func (o *options) trace(ctx context.Context, q *query) (results []*result, err error) {
	for range readings {
		w, err := o.readWorld(ctx)
		if err != nil {
			return nil, err
		}
		if results, err = w.answer(ctx, q); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(results, func(r *result) bool { return r.Disagreement != "" }) {
			break
		}
	}
	return results, nil
}

// answer answers the question from the state that was read.
func (w *world) answer(ctx context.Context, q *query) ([]*result, error) {
	from, err := findEnd(w.options.from, w.Objects, q.services)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	if from.service != nil {
		return nil, fmt.Errorf("--from: %s is a Service: nothing is sent from its address", from.text)
	}
	if results, err := w.answerProxied(ctx, q, from); err != nil || results != nil {
		return results, err
	}
	if results, err := w.answerNodePort(ctx, q, from); err != nil || results != nil {
		return results, err
	}
	to, err := findEnd(w.options.to, w.Objects, q.services)
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	if err := unknownService(to, &w.Nodes[0].Model); err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	targets, err := q.targets(to, w)
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	notes, err := w.proxyNotes(ctx, q, from, to)
	if err != nil {
		return nil, err
	}
	var results []*result
	for _, t := range targets {
		r, err := w.result(ctx, q, from, t)
		if err != nil {
			return nil, err
		}
		if to.service != nil {
			r.Service = to.text
		}
		r.Notes = append(r.Notes, notes...)
		results = append(results, r)
	}
	return results, nil
}

// unknownService refuses an address of a Service that is not known. The Service's proxy translates such packets before
// policy sees them. Without the Service, trace would follow the address to the chain that drops unclaimed Service addresses.
func unknownService(to end, m *control.Model) error {
	if to.pod != nil || to.service != nil {
		return nil
	}
	for _, a := range to.addrs {
		for _, p := range slices.Concat(m.Settings.ServiceCIDRs, m.ServiceCIDRs) {
			if p.Contains(a) {
				return fmt.Errorf("%s is in the Service addresses %s, and felixlike does not watch Services: %s", a, p, servicesHint)
			}
		}
	}
	return nil
}

// targets are the ends and ports that the packet may go to.
func (q *query) targets(to end, w *world) ([]target, error) {
	if to.service != nil {
		all, err := endpoints(to.service, q.port, w.Objects)
		return ofFamily(all, to), err
	}
	number, err := q.port.of(to.pod, to.text)
	return []target{{to, number}}, err
}

// ofFamily leaves the endpoints their addresses of the family of the Service's address, if one was asked for.
func ofFamily(all []target, to end) []target {
	for i := range all {
		for _, a := range to.addrs {
			all[i].addrs = slices.DeleteFunc(slices.Clone(all[i].addrs), func(o netip.Addr) bool { return model.FamilyOf(o) != model.FamilyOf(a) })
		}
	}
	return all
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
	if r.Policies, err = w.Judge(p); err != nil {
		return nil, err
	}
	path, err := w.Follow(p)
	if errors.Is(err, trace.ErrElsewhere) && w.options.writes {
		return r, nil // it does not come here, but that to another endpoint may
	}
	if errors.Is(err, trace.ErrElsewhere) {
		return nil, fmt.Errorf("%s%s and %s%s: neither is on %s, whose agent was asked", from.text, w.at(p.Source), to.text, w.at(p.Destination), w.Nodes[0].Name)
	}
	if err != nil {
		return nil, err
	}
	r.Programmed = []programmed{{Backend: w.Nodes[0].Backend, Path: path}}
	w.verdict(r, path)
	w.notes(r, path)
	if err := w.others(r); err != nil {
		return nil, err
	}
	if w.options.live {
		if r.Live, err = w.sendLive(ctx, p); err != nil {
			return nil, fmt.Errorf("--live: %w", err)
		}
		w.compareLive(r, path)
	}
	if r.Disagreement != "" {
		r.Because = w.Because(p)
		if path.ByForeign() {
			r.Because = "a firewall of another program drops packets of pods at FORWARD (docs/operate/firewalls.md)"
		}
		if path.NoEgress() {
			r.Because = "an Egress selects the pod, and this node does not have its address (docs/use/egress.md)"
		}
	}
	return r, nil
}

// verdict is that of the programmed state, with a reason for people. If the node of one
// end was not asked, the policies decide for that end.
func (w *world) verdict(r *result, path *trace.Path) {
	r.Disagreement = trace.Compare(r.Policies, path)
	o := path.Opinion()
	if o.Through && r.Disagreement == "" {
		o.Through = r.Policies.Through
	}
	r.Verdict, r.Why = denied, o.Why
	if o.Through {
		r.Verdict = allowed
	}
	if r.Disagreement == "" && o.Through == r.Policies.Through {
		r.Why = r.Policies.Why
	}
}

// others follow the packet through the desired state of other backends.
func (w *world) others(r *result) error {
	for _, backend := range w.options.backends {
		path, err := w.FollowWanted(r.Packet, backend)
		if err != nil {
			return fmt.Errorf("desired state of %s: %w", backend, err)
		}
		r.Programmed = append(r.Programmed, programmed{Backend: backend, Wanted: true, Path: path})
		if what := trace.Compare(r.Policies, path); what != "" && r.Disagreement == "" {
			r.Disagreement = fmt.Sprintf("under %s: %s", backend, what)
		}
	}
	return nil
}

// notes names the nodes that were not asked.
func (w *world) notes(r *result, path *trace.Path) {
	for _, end := range []struct {
		asked bool
		addr  netip.Addr
		what  string
	}{{path.Egress, r.Packet.Source, "egress"}, {path.Ingress, r.Packet.Destination, "ingress"}} {
		if node := cmp.Or(w.NodeOf(end.addr), w.HostWithPolicy(end.addr)); node != "" && !end.asked {
			why := "was not asked; only the policies answer for it: trace there as well"
			if fault := w.Silent[node]; fault != "" {
				why = "gave no answer (" + fault + "); only the policies answer for it"
			}
			r.Notes = append(r.Notes, fmt.Sprintf("%s of %s is judged on %s, which %s", end.what, named(end.addr, w), node, why))
		}
	}
	for _, n := range w.Nodes {
		if n.Unasked() {
			r.Notes = append(r.Notes, fmt.Sprintf("firewalls of other programs on %s were not asked: trace there for them", n.Name))
		}
	}
}

// at names the node of an address, if known.
func (w *world) at(a netip.Addr) string {
	if node := w.NodeOf(a); node != "" {
		return " is on " + node
	}
	return ""
}

// named writes an address with its owner.
func named(a netip.Addr, w *world) string {
	if name := w.Names.Address(a); name != "" {
		return name
	}
	return a.String()
}
