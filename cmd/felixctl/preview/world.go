package preview

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// World answers many questions about one cluster.
type World struct {
	*verdicts
	policies  []anyPolicy
	ends      []*end
	decisions *decisions
	// possible has the pods of Possible.
	possible map[string]*end
}

// End is pods that neither policies nor the sets of the questions distinguish, a node, or a
// region of addresses outside.
type End = end

// NewWorld returns the cluster of the objects, whose nodes have the failsafe ports. The prefixes have the addresses that pods can get, beside
// those of nodes.
func NewWorld(o control.Objects, failsafe model.Failsafe, podPrefixes []netip.Prefix) *World {
	w := &World{verdicts: newVerdicts(o), policies: policiesOf(o), possible: map[string]*end{}}
	w.podPrefixes, w.failsafe = podPrefixes, failsafe
	for _, f := range model.Families() {
		if !slices.Contains(w.families, f) && slices.ContainsFunc(podPrefixes, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f }) {
			w.families = append(w.families, f)
		}
	}
	slices.SortFunc(w.policies, comparePolicies)
	w.decisions = newDecisions(w.policies)
	w.decisions.prefixes = w.taken().prefixes
	return w
}

// Set returns the ends that a text as in Ends names.
func (w *World) Set(text string) (*Set, error) { return w.set(text) }

// Divide makes the ends such that each is in a set or not. All sets of Ends, Judge and Possible must be among these.
func (w *World) Divide(sets []*Set) {
	of := w.blocks(w.policies)
	all := slices.Clone(of)
	for _, s := range sets {
		all = append(all, s.prefixes...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	all = slices.Compact(all)
	w.ends = nil
	for _, class := range classes(w.objects.Pods, w.namespaces, w.policies, nil, of) {
		w.ends = append(w.ends, class.divided(sets)...)
	}
	w.ends = append(w.ends, nodes(w.objects.Nodes, w.policies)...)
	taken := w.taken()
	for _, f := range w.families {
		w.ends = append(w.ends, outside(f, all, taken)...)
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

// Pods returns the pods of the end.
func (e *end) Pods() []*corev1.Pod { return e.pods }

// Words names the end as questions do: ends with "or" between them, and "except" before those that are left out.
func (e *end) Words() string {
	switch {
	case len(e.pods) > 0:
		return strings.Join(e.names(), " or ")
	case e.node != nil:
		return "node:" + e.node.Name
	}
	text := e.region.String()
	for i, p := range e.inside {
		text += []string{" except ", " or "}[min(i, 1)] + p.String()
	}
	return text
}

// Packets are packets with one verdict and reason.
type Packets struct {
	From, To *End
	Ports    model.PortRange
	oracle.Verdict
	Family model.Family
}

// Because names the policies and rules.
func (p *Packets) Because() string { return because(p.Verdict) }

// Judge visits the packets between two ends on the ports, all if there are none, as far as there are any. None of the packets is
// partly in one of the other ranges.
func (w *World) Judge(from, to *End, ports, others []model.PortRange, visit func(Packets)) {
	for _, pair := range apart(from, to) {
		for _, f := range w.families {
			judge := w.both
			if from.node != nil || to.node != nil {
				judge = w.evaluate
			}
			judge(pair[0], pair[1], f, ports, others, func(r model.PortRange, v oracle.Verdict) {
				visit(Packets{pair[0], pair[1], r, v, f})
			})
		}
	}
}

// evaluate visits the packets of one family. ICMP stands for that of the family.
func (v *verdicts) evaluate(from, to *end, f model.Family, ports, others []model.PortRange, visit func(model.PortRange, oracle.Verdict)) {
	source, a := from.representative(f, func(*corev1.Pod) bool { return true })
	destination, b := to.representative(f, func(p *corev1.Pod) bool { return p != a })
	if !source.IsValid() || !destination.IsValid() || source == destination {
		return
	}
	policies := slices.Concat(from.policies[0], to.policies[0])
	slices.SortFunc(policies, comparePolicies)
	policies = slices.Compact(policies)
	cluster := v.cluster(a, b, policies, from.node, to.node)
	if to.node != nil {
		others = append(slices.Clip(others), tooBig(f))
	}
	for _, r := range spans(policies, b, f, inFamily(f, ports, others, v.failsafe.Ranges())...) {
		if len(ports) == 0 || slices.ContainsFunc(ports, func(p model.PortRange) bool { return Covers(p, r) }) {
			visit(r, cluster.Evaluate(oracle.Packet{Source: source, Destination: destination, Protocol: r.Protocol, Port: r.First}))
		}
	}
}

// inFamily returns all ranges with the ICMP of the family.
func inFamily(f model.Family, ranges ...[]model.PortRange) []model.PortRange {
	all := slices.Concat(ranges...)
	for i := range all {
		if all[i].Protocol.IsICMP() {
			all[i].Protocol, _ = model.EchoRequest(f)
		}
	}
	return all
}

// Covers reports whether a range has all ports of another. ICMP stands for that of both families.
func Covers(r, other model.PortRange) bool {
	same := r.Protocol == other.Protocol || r.Protocol.IsICMP() && other.Protocol.IsICMP()
	return same && r.First <= other.First && other.Last <= r.Last
}

// Pods returns the set of all pods.
func (w *World) Pods() *Set { return &Set{has: func(e *end) bool { return len(e.pods) > 0 }} }

// WithHosts returns the set with the nodes that have one of its pods in their network.
func (w *World) WithHosts(s *Set) *Set {
	return s.Or(w.pods(func(p *corev1.Pod) bool { return s.has(&end{pods: []*corev1.Pod{p}}) }))
}

// None returns the set of nothing.
func (w *World) None() *Set { return &Set{has: func(*end) bool { return false }} }

// All returns the set of everything.
func (w *World) All() *Set { return &Set{has: func(*end) bool { return true }} }

// LabelNames lists the labels of pods that policies name.
func (w *World) LabelNames() []string { return labelNames(w.policies) }

// Families are those of the pods.
func (w *World) Families() []model.Family { return w.families }

// NamesNodes reports whether a policy has nodes as peers.
func (w *World) NamesNodes() bool { return slices.ContainsFunc(w.policies, anyPolicy.namesNodes) }

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
