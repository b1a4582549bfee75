package preview

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// World answers many questions about one cluster.
type World struct {
	*verdicts
	policies []anyPolicy
	// podPrefixes have the addresses that pods can get.
	podPrefixes []netip.Prefix
	ends        []*end
}

// End is pods that neither policies nor the sets of the questions distinguish, a node, or a
// region of addresses outside.
type End = end

// NewWorld returns the cluster of the objects.
func NewWorld(o control.Objects, podPrefixes []netip.Prefix) *World {
	w := &World{verdicts: newVerdicts(o), policies: policiesOf(o), podPrefixes: podPrefixes}
	slices.SortFunc(w.policies, comparePolicies)
	return w
}

// Set returns the ends that a text as in Ends names.
func (w *World) Set(text string) (*Set, error) { return w.set(text) }

// Divide makes the ends such that each is in a set or not. All sets of Ends, Judge and Possible must be among these.
func (w *World) Divide(sets []*Set) {
	of := blocks(w.policies, w.objects.Nodes)
	all := slices.Clone(of)
	for _, s := range sets {
		all = append(all, s.prefixes...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	w.ends = nil
	for _, class := range classes(w.objects.Pods, w.namespaces, w.policies, nil, of) {
		w.ends = append(w.ends, class.divided(sets)...)
	}
	w.ends = append(w.ends, nodes(w.objects.Nodes)...)
	taken := w.taken()
	for _, f := range w.families {
		w.ends = append(w.ends, outside(f, slices.Compact(all), func(a netip.Addr) bool {
			return taken(a) || slices.ContainsFunc(w.podPrefixes, func(p netip.Prefix) bool { return p.Contains(a) })
		})...)
	}
}

// divided returns the parts of a class of pods that are in the same sets.
func (e *end) divided(sets []*Set) (parts []*end) {
	byKey := map[string]*end{}
	for _, p := range e.pods {
		key := make([]byte, len(sets))
		for i, s := range sets {
			if s.has(&end{pods: []*corev1.Pod{p}}) {
				key[i] = 1
			}
		}
		if byKey[string(key)] == nil {
			byKey[string(key)] = &end{policies: e.policies}
			parts = append(parts, byKey[string(key)])
		}
		part := byKey[string(key)]
		part.pods = append(part.pods, p)
		part.text = podsText(part.pods)
	}
	return parts
}

// Ends returns the ends of a set.
func (w *World) Ends(s *Set) []*End {
	return slices.DeleteFunc(slices.Clone(w.ends), func(e *end) bool { return !s.has(e) })
}

// String names the end in few words.
func (e *end) String() string { return e.text }

// Packets are packets with one verdict and reason.
type Packets struct {
	From, To *End
	Ports    model.PortRange
	oracle.Verdict
}

// Because names the policies and rules.
func (p *Packets) Because() string { return because(p.Verdict) }

// Judge visits the packets between two ends on the ports, all if there are none, as far as there are any. None of the packets is
// partly in one of the other ranges.
func (w *World) Judge(from, to *End, ports, others []model.PortRange, visit func(Packets)) {
	for _, pair := range apart(from, to) {
		for _, f := range w.families {
			w.evaluate(pair[0], pair[1], f, ports, others, func(r model.PortRange, v oracle.Verdict) {
				visit(Packets{pair[0], pair[1], r, v})
			})
		}
	}
}

// evaluate visits the packets of one family. An ICMP protocol stands for echo requests.
func (v *verdicts) evaluate(from, to *end, f model.Family, ports, others []model.PortRange, visit func(model.PortRange, oracle.Verdict)) {
	source, a := from.representative(f, func(*corev1.Pod) bool { return true })
	destination, b := to.representative(f, func(p *corev1.Pod) bool { return p != a })
	if !source.IsValid() || !destination.IsValid() || source == destination {
		return
	}
	policies := slices.Concat(from.policies[0], to.policies[0])
	slices.SortFunc(policies, comparePolicies)
	policies = slices.Compact(policies)
	cluster := v.cluster(a, b, policies)
	ports, others = inFamily(ports, f), inFamily(others, f)
	for _, r := range spans(policies, b, f, slices.Concat(ports, others)...) {
		if len(ports) == 0 || slices.ContainsFunc(ports, func(p model.PortRange) bool { return Covers(p, r) }) {
			visit(r, cluster.Evaluate(oracle.Packet{Source: source, Destination: destination, Protocol: r.Protocol, Port: r.First}))
		}
	}
}

// inFamily returns the ranges with echo requests in place of ICMP.
func inFamily(ranges []model.PortRange, f model.Family) []model.PortRange {
	all := slices.Clone(ranges)
	for i, r := range all {
		if r.Protocol.IsICMP() {
			all[i].Protocol, all[i].First = model.EchoRequest(f)
			all[i].Last = all[i].First
		}
	}
	return all
}

// Covers reports whether a range has all ports of another. An ICMP protocol stands for echo requests.
func Covers(r, other model.PortRange) bool {
	if r.Protocol.IsICMP() && other.Protocol.IsICMP() {
		_, echo := model.EchoRequest(other.Protocol.ICMPFamily())
		return other.First == echo && other.Last == echo
	}
	return r.Protocol == other.Protocol && r.First <= other.First && other.Last <= r.Last
}

// Rules lists the rules of all policies. A NetworkPolicy that isolates pods in a direction and has no rule there is
// listed with the direction in place of the rule.
func (w *World) Rules() (all []oracle.RuleID) {
	for _, p := range w.policies {
		for _, d := range []model.Direction{model.Ingress, model.Egress} {
			id, titles := p.rules(d)
			for i, title := range titles {
				all = append(all, oracle.RuleID{Policy: id, Rule: fmt.Sprintf("%s[%d]", d, i), Title: model.RuleTitle(title)})
			}
			if p.network != nil && p.about(d) && len(titles) == 0 {
				all = append(all, oracle.RuleID{Policy: id, Rule: d.String()})
			}
		}
	}
	return all
}

// Policies returns the number of policies.
func (w *World) Policies() int { return len(w.policies) }
