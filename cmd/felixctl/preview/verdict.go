package preview

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// Verdicts of a Difference.
const (
	Allowed = "allowed"
	Denied  = "denied"
)

// Difference is packets that would get another verdict.
type Difference struct {
	// From and To name the two ends: pods, a node, or addresses. The difference holds for
	// every pair of them, except a pod and itself, and a pod and its own node.
	From []string `json:"from"`
	To   []string `json:"to"`
	// Families are "IPv4", "IPv6".
	Families []string `json:"families"`
	// Ports are as in "tcp/80", "udp/1-99", "sctp", "icmp", "icmp type 8", or "all".
	Ports []string `json:"ports"`
	// Becomes is Allowed or Denied.
	Becomes string `json:"becomes"`
	// Because names the policies.
	Because string `json:"because"`

	from, to *end
	ranges   []model.PortRange
	// still says that a rule of the change allows the packets at one end, and the other end denies them as before.
	still bool
}

// verdicts compares the verdicts of policies before and after, for every packet that a
// changed policy may affect.
type verdicts struct {
	objects    control.Objects
	namespaces map[string]*corev1.Namespace
	ends       []*end
	families   []model.Family
	// podPrefixes have the addresses that pods can get, beside those of nodes.
	podPrefixes []netip.Prefix
	// failsafe are the ports that no policy closes for a node.
	failsafe model.Failsafe
}

func newVerdicts(o control.Objects) *verdicts {
	v := &verdicts{objects: o, namespaces: map[string]*corev1.Namespace{}}
	for _, n := range o.Namespaces {
		v.namespaces[n.Name] = n
	}
	for _, f := range model.Families() {
		if slices.ContainsFunc(o.Pods, func(p *corev1.Pod) bool { return addressOf(p, f).IsValid() }) {
			v.families = append(v.families, f)
		}
	}
	return v
}

// differences returns the packets with changed verdicts.
func differences(ctx context.Context, o control.Objects, before, after, changed []anyPolicy) ([]Difference, error) {
	v := newVerdicts(o)
	divides := blocks(concerning(before, after, changed), o.Nodes)
	// Policies of the peers judge too, so their blocks distinguish pods as well.
	v.ends = classes(o.Pods, v.namespaces, before, after, blocks(slices.Concat(before, after), o.Nodes))
	var subjects []*end
	for _, e := range v.ends {
		if v.affected(e, changed) {
			subjects = append(subjects, e)
		}
	}
	v.ends = append(v.ends, nodes(o.Nodes, nil)...) // Nodes has packets of nodes by their own policies
	for _, f := range v.families {
		v.ends = append(v.ends, outside(f, divides, v.taken())...)
	}
	var all []Difference
	for i, s := range subjects {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("judge packets: %d of %d kinds of pods are done: %w", i, len(subjects), context.Cause(ctx))
		}
		for _, peer := range v.ends {
			all = append(all, v.pair(s, peer)...)
			if !v.affected(peer, changed) {
				all = append(all, v.pair(peer, s)...)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Difference) int {
		return cmp.Or(strings.Compare(a.from.text, b.from.text), strings.Compare(a.to.text, b.to.text))
	})
	return all, nil
}

// concerning are the policies that may apply to a pod that a changed one selects:
// NetworkPolicies of the same namespaces, and all of other kinds.
func concerning(before, after, changed []anyPolicy) []anyPolicy {
	var all []anyPolicy
	for _, p := range slices.Concat(before, after) {
		if p.network == nil || slices.ContainsFunc(changed, func(c anyPolicy) bool { return c.network == nil || c.network.Namespace == p.network.Namespace }) {
			all = append(all, p)
		}
	}
	return all
}

// taken returns the cluster's addresses.
func (v *verdicts) taken() space {
	s := space{PodPrefixes(v.objects.Nodes), map[netip.Addr]bool{}}
	for _, n := range v.objects.Nodes {
		for _, f := range model.Families() {
			s.own[nodeAddress(n, f)] = true
		}
	}
	for _, p := range v.objects.Pods {
		for _, f := range model.Families() {
			s.own[addressOf(p, f)] = true
		}
	}
	s.prefixes = append(s.prefixes, v.podPrefixes...)
	return s
}

// PodPrefixes lists the pod prefixes of nodes, without duplicates.
func PodPrefixes(nodes []*corev1.Node) (all []netip.Prefix) {
	for _, n := range nodes {
		for _, c := range append(slices.Clone(n.Spec.PodCIDRs), n.Spec.PodCIDR) {
			if p, err := netip.ParsePrefix(c); err == nil {
				all = append(all, p.Masked())
			}
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// pair compares the packets from one end to another.
func (v *verdicts) pair(from, to *end) []Difference {
	return v.eachFamily(func(f model.Family) []Difference { return v.judge(from, to, f) })
}

// eachFamily joins the results of all families that are alike.
func (v *verdicts) eachFamily(of func(model.Family) []Difference) []Difference {
	var all []Difference
	for _, f := range v.families {
		for _, d := range of(f) {
			same := slices.IndexFunc(all, func(o Difference) bool {
				return o.Becomes == d.Becomes && o.still == d.still && o.Because == d.Because && slices.Equal(o.Ports, d.Ports)
			})
			if same >= 0 {
				all[same].Families = append(all[same].Families, d.Families...)
				all[same].ranges = append(all[same].ranges, d.ranges...) // ICMP is another protocol in each family
				continue
			}
			all = append(all, d)
		}
	}
	return all
}

// representatives returns a pair of addresses that stands for all of the two ends.
func representatives(from, to *end, f model.Family) (source, destination netip.Addr, a, b *corev1.Pod) {
	source, a = from.representative(f, func(p *corev1.Pod) bool { return to.node == nil || p.Spec.NodeName != to.node.Name })
	destination, b = to.representative(f, func(p *corev1.Pod) bool {
		return p != a && (from.node == nil || p.Spec.NodeName != from.node.Name)
	})
	return source, destination, a, b
}

func (e *end) representative(f model.Family, fits func(*corev1.Pod) bool) (netip.Addr, *corev1.Pod) {
	if e.node != nil {
		return nodeAddress(e.node, f), nil
	}
	for _, p := range e.pods {
		if a := addressOf(p, f); a.IsValid() && fits(p) {
			return a, p
		}
	}
	if e.addr.IsValid() && model.FamilyOf(e.addr) == f {
		return e.addr, nil
	}
	return netip.Addr{}, nil
}

// judge compares the packets of one family.
func (v *verdicts) judge(from, to *end, f model.Family) []Difference {
	source, destination, a, b := representatives(from, to, f)
	if !source.IsValid() || !destination.IsValid() {
		return nil
	}
	var clusters [2]*oracle.Cluster
	var policies []anyPolicy
	for when := range clusters {
		of := slices.Concat(from.policies[when], to.policies[when])
		slices.SortFunc(of, comparePolicies)
		of = slices.Compact(of)
		clusters[when] = v.cluster(a, b, of)
		policies = append(policies, of...)
	}
	var all, still verdictRanges
	for _, r := range spans(policies, b, f) {
		p := oracle.Packet{Source: source, Destination: destination, Protocol: r.Protocol, Port: r.First}
		now, then := clusters[0].Evaluate(p), clusters[1].Evaluate(p)
		if now.Allowed != then.Allowed {
			all.add(from, to, f, then, r)
		} else if !then.Allowed && (newlyAllows(now.Egress, then.Egress) || newlyAllows(now.Ingress, then.Ingress)) {
			still.add(from, to, f, then, r)
		}
	}
	for i := range still {
		still[i].still = true
	}
	return append(all.named(), still.named()...)
}

// newlyAllows reports whether a rule allows at an end where none did before.
func newlyAllows(now, then oracle.Decision) bool {
	return then.Why == oracle.RuleAllows && now.Why != oracle.RuleAllows
}

// verdictRanges are the ranges of ports between two ends, by verdict and reason.
type verdictRanges []Difference

func (all *verdictRanges) add(from, to *end, f model.Family, then oracle.Verdict, r model.PortRange) {
	d := Difference{
		From: from.others(to.node), To: to.others(from.node), from: from, to: to,
		Families: []string{"IPv" + f.String()}, Becomes: Denied, Because: because(then),
	}
	if then.Allowed {
		d.Becomes = Allowed
	}
	all.join(d, r)
}

// join adds a range of ports to the difference that it belongs to.
func (all *verdictRanges) join(d Difference, r model.PortRange) {
	same := slices.IndexFunc(*all, func(o Difference) bool { return o.Becomes == d.Becomes && o.Because == d.Because })
	if same < 0 {
		*all, same = append(*all, d), len(*all)
	}
	(*all)[same].ranges = append((*all)[same].ranges, r)
}

// named names the ranges of ports.
func (all verdictRanges) named() []Difference {
	for i := range all {
		all[i].Ports = PortsText(all[i].ranges)
	}
	return all
}

// others names the end's pods that are not on the node. Their own node always reaches
// them, and packets to it are not compared.
func (e *end) others(node *corev1.Node) []string {
	if node == nil || len(e.pods) == 0 {
		return e.names()
	}
	var names []string
	for _, p := range e.pods {
		if p.Spec.NodeName != node.Name {
			names = append(names, podName(p))
		}
	}
	return names
}

// cluster returns an oracle cluster with the inputs that affect packets between two pods, or with one of the nodes themselves.
func (v *verdicts) cluster(a, b *corev1.Pod, policies []anyPolicy, nodes ...*corev1.Node) *oracle.Cluster {
	c := &oracle.Cluster{Hosts: map[string]oracle.Host{}}
	c.Antrea.Isolation = v.objects.Antrea.Isolation
	addPolicies(c, policies)
	// Isolation is about all pod prefixes, also of nodes without these pods, and of none.
	allNodes := c.Antrea.Isolation || slices.ContainsFunc(policies, anyPolicy.namesNodes)
	if allNodes {
		c.Nodes = v.objects.Nodes
	}
	if c.Antrea.Isolation && len(v.podPrefixes) > 0 {
		prefixes := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "*"}}
		for _, p := range v.podPrefixes {
			prefixes.Spec.PodCIDRs = append(prefixes.Spec.PodCIDRs, p.String())
		}
		c.Nodes = append(slices.Clip(c.Nodes), prefixes)
	}
	for _, p := range []*corev1.Pod{a, b} {
		if p == nil {
			continue
		}
		c.Pods = append(c.Pods, p)
		if n := v.namespaces[p.Namespace]; n != nil && !slices.Contains(c.Namespaces, n) {
			c.Namespaces = append(c.Namespaces, n)
		}
		for _, n := range v.objects.Nodes {
			if !allNodes && n.Name == p.Spec.NodeName {
				c.Nodes = append(c.Nodes, n)
			}
		}
	}
	for _, n := range nodes {
		if n == nil {
			continue
		}
		if c.Hosts[n.Name] = (oracle.Host{Failsafe: v.failsafe}); !slices.Contains(c.Nodes, n) {
			c.Nodes = append(slices.Clip(c.Nodes), n)
		}
	}
	return c
}

// because gives the reason for a verdict.
func because(v oracle.Verdict) string {
	var parts []string
	for _, end := range []struct {
		direction model.Direction
		oracle.Decision
	}{{model.Egress, v.Egress}, {model.Ingress, v.Ingress}} {
		switch {
		case end.Why == oracle.RuleAllows && v.Allowed:
			parts = append(parts, fmt.Sprintf("%s %s allows it", end.Policy, model.TitledRule(end.Rule, end.Title)))
		case end.Why == oracle.RuleDenies:
			parts = append(parts, fmt.Sprintf("%s %s denies it", end.Policy, model.TitledRule(end.Rule, end.Title)))
		case end.Why == oracle.FailsafePort && v.Allowed:
			parts = append(parts, string(oracle.FailsafePort))
		case end.Why == oracle.PathMTU && v.Allowed:
			parts = append(parts, string(oracle.PathMTU))
		case end.Why == oracle.OwnNode && v.Allowed && len(parts) == 0:
			parts = append(parts, string(oracle.OwnNode))
		case !end.Allowed && len(end.Isolating) == 0:
			parts = append(parts, string(end.Why))
		case !end.Allowed:
			parts = append(parts, fmt.Sprintf("%s is isolated by %s, and no rule allows it", end.direction, policiesText(end.Isolating)))
		}
	}
	if len(parts) == 0 {
		return "no policy isolates either end"
	}
	return strings.Join(parts, "; ")
}

func policiesText(all []model.PolicyID) string {
	var names []string
	for _, id := range all {
		names = append(names, id.String())
	}
	return strings.Join(names, ", ")
}

// affected reports whether one of the policies selects an end.
func (v *verdicts) affected(e *end, changed []anyPolicy) bool {
	return len(e.pods) > 0 && slices.ContainsFunc(changed, func(p anyPolicy) bool { return p.selects(e.pods[0], v.namespaces[e.pods[0].Namespace]) })
}
