package preview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/felixlike/tenancy"
	"github.com/felixlike/felixlike/model"
)

// referenced returns the tiers and groups of the objects, without policies.
func referenced(o antrea.Objects) *antrea.Objects {
	o.ClusterPolicies, o.Policies, o.Pools, o.OwnPools, o.Egresses, o.NodeEgresses, o.NetNamespaces, o.EgressPolicies = nil, nil, nil, nil, nil, nil, nil, nil
	return &o
}

// projects are the objects by which EgressNetworkPolicies are judged: which of them apply to a pod, and whether they are in conflict.
type projects struct {
	netNamespaces  []*antrea.NetNamespace
	egressPolicies []*antrea.EgressNetworkPolicy
	classes        *tenancy.Classes
}

func projectsOf(o antrea.Objects) *projects {
	t := &projects{o.NetNamespaces, o.EgressPolicies, tenancy.New()}
	for _, n := range o.NetNamespaces {
		t.classes.Set(n.Name, n)
	}
	return t
}

// isAntreaPolicy reports whether an object is a policy, not a tier or a group. A NetNamespace is one for the pods of its namespace.
func isAntreaPolicy(o antrea.Object) bool {
	return compile.AntreaSpec(o) != nil || isNetNamespace(o) || isEgressPolicy(o)
}

func isEgressPolicy(o antrea.Object) bool {
	_, is := o.(*antrea.EgressNetworkPolicy)
	return is
}

func isNetNamespace(o antrea.Object) bool {
	_, is := o.(*antrea.NetNamespace)
	return is
}

// antreaPolicies returns the policies among the objects.
func antreaPolicies(o antrea.Objects) []anyPolicy {
	var all []anyPolicy
	to, of := referenced(o), projectsOf(o)
	for _, object := range o.All() {
		if isAntreaPolicy(object) {
			all = append(all, antreaPolicy(object, to, of))
		}
	}
	return all
}

// antreaPolicy returns an object as a policy.
func antreaPolicy(o antrea.Object, refersTo *antrea.Objects, of *projects) anyPolicy {
	p := anyPolicy{antrea: o, refersTo: refersTo}
	if isEgressPolicy(o) {
		p.projects = of
	}
	return p
}

// antreaContent is the part of an object that counts.
func antreaContent(o antrea.Object) any {
	switch o := o.(type) {
	case *antrea.Tier:
		return o.Spec
	case *antrea.ClusterGroup:
		return o.Spec
	case *antrea.Group:
		return o.Spec
	case *antrea.NetNamespace:
		return []any{o.NetName, o.NetID, o.EgressIPs}
	case *antrea.EgressNetworkPolicy:
		return o.Spec
	}
	return []any{*compile.AntreaSpec(o), o.GetAnnotations()[model.PreDNATAnnotation], o.GetAnnotations()[model.UntrackedAnnotation], compile.Staged(o.GetAnnotations())}
}

// antreaRules are the rules of both directions, none of a tier or a group.
func antreaRules(o antrea.Object) []antrea.Rule {
	if spec := compile.AntreaSpec(o); spec != nil {
		return slices.Concat(spec.Ingress, spec.Egress)
	}
	return nil
}

// antreaAbout reports whether the policy has rules of a direction.
func antreaAbout(o antrea.Object, d model.Direction) bool {
	return len(directed(o, d)) > 0 || d == model.Ingress && isNetNamespace(o) || d == model.Egress && isEgressPolicy(o)
}

// setAntrea adds the object to an engine, and the tiers and groups that it may refer to.
func (p anyPolicy) setAntrea(e *policy.Engine) {
	for _, o := range p.refersTo.All() {
		e.SetAntrea(o)
	}
	e.SetAntrea(p.antrea)
}

func directed(o antrea.Object, d model.Direction) []antrea.Rule {
	spec := compile.AntreaSpec(o)
	switch {
	case spec == nil:
		return nil
	case d == model.Ingress:
		return spec.Ingress
	}
	return spec.Egress
}

// antreaSelects reports whether a rule of the policy may apply to a pod.
func (p anyPolicy) antreaSelects(pod *corev1.Pod, namespaces []*corev1.Namespace) bool {
	if !isAntreaPolicy(p.antrea) {
		return false
	}
	if isNetNamespace(p.antrea) {
		return pod.Namespace == p.antrea.GetName()
	}
	if isEgressPolicy(p.antrea) {
		return p.projects.classes.Of(pod.Namespace) == p.projects.classes.Of(p.antrea.GetNamespace())
	}
	c := oracle.Cluster{Namespaces: namespaces, Antrea: *p.refersTo}
	return slices.ContainsFunc(model.Directions(), func(d model.Direction) bool { return c.IsAntreaSubject(p.antrea, d, pod) })
}

// antreaPodSelectors lists the selectors of pods of the policy, and of all groups.
func (p anyPolicy) antreaPodSelectors() []*metav1.LabelSelector {
	var all []*metav1.LabelSelector
	add := func(s *metav1.LabelSelector) {
		if s != nil {
			all = append(all, s)
		}
	}
	for _, g := range p.groups() {
		add(g.PodSelector)
	}
	for _, peer := range antreaPeers(p.antrea) {
		add(peer.PodSelector)
	}
	for _, a := range appliedTo(p.antrea) {
		add(a.PodSelector)
	}
	return all
}

// antreaNamespaceSelectors lists the selectors of namespaces of the policy, and of all groups.
func (p anyPolicy) antreaNamespaceSelectors() []*metav1.LabelSelector {
	var all []*metav1.LabelSelector
	for _, g := range p.groups() {
		all = append(all, g.NamespaceSelector)
	}
	for _, peer := range antreaPeers(p.antrea) {
		all = append(all, peer.NamespaceSelector)
	}
	for _, a := range appliedTo(p.antrea) {
		all = append(all, a.NamespaceSelector)
	}
	return slices.DeleteFunc(all, func(s *metav1.LabelSelector) bool { return s == nil })
}

// sameLabels lists the labels of namespaces that rules compare.
func sameLabels(o antrea.Object) (all []string) {
	for _, peer := range antreaPeers(o) {
		if peer.Namespaces != nil {
			all = append(all, peer.Namespaces.SameLabels...)
		}
	}
	return all
}

// antreaPeers are those of the rules of both directions.
func antreaPeers(o antrea.Object) (all []antrea.Peer) {
	for _, r := range antreaRules(o) {
		all = append(append(all, r.From...), r.To...)
	}
	return all
}

// appliedTo lists the targets of the policy and of its rules.
func appliedTo(o antrea.Object) []antrea.AppliedTo {
	spec := compile.AntreaSpec(o)
	if spec == nil {
		return nil
	}
	all := slices.Clone(spec.AppliedTo)
	for _, r := range antreaRules(o) {
		all = append(all, r.AppliedTo...)
	}
	return all
}

// groups lists the groups that the policy may refer to.
func (p anyPolicy) groups() []antrea.GroupSpec {
	var all []antrea.GroupSpec
	for _, g := range p.refersTo.ClusterGroups {
		all = append(all, g.Spec)
	}
	for _, g := range p.refersTo.Groups {
		all = append(all, g.Spec)
	}
	return all
}

// antreaPrefixes lists the blocks of the policy and of all groups, exceptions among them.
func (p anyPolicy) antreaPrefixes() []string {
	var blocks []antrea.IPBlock
	for _, g := range p.groups() {
		blocks = append(blocks, g.IPBlocks...)
	}
	for _, r := range antreaRules(p.antrea) {
		for _, peer := range slices.Concat(r.From, r.To) {
			if peer.IPBlock != nil {
				blocks = append(blocks, *peer.IPBlock)
			}
		}
	}
	var all []string
	if o, is := p.antrea.(*antrea.EgressNetworkPolicy); is {
		for _, r := range o.Spec.Egress {
			all = append(all, r.To.CIDRSelector)
		}
	}
	for _, b := range blocks {
		all = append(append(all, b.CIDR), b.Except...)
	}
	return all
}

// antreaNamesNodes reports whether a rule has nodes as peers.
func antreaNamesNodes(o antrea.Object) bool {
	return slices.ContainsFunc(antreaRules(o), func(r antrea.Rule) bool {
		return slices.ContainsFunc(slices.Concat(r.From, r.To), func(peer antrea.Peer) bool { return peer.NodeSelector != nil })
	})
}

// antreaPorts lists the ports of rules.
func antreaPorts(o antrea.Object) []networkingv1.NetworkPolicyPort {
	var all []networkingv1.NetworkPolicyPort
	for _, r := range antreaRules(o) {
		for _, port := range r.Ports {
			all = append(all, networkingv1.NetworkPolicyPort{Protocol: port.Protocol, Port: port.Port, EndPort: port.EndPort})
		}
	}
	return all
}

// cutMessages cuts at the messages of ICMP that rules name, of both families.
func cutMessages(o antrea.Object, cut cutter) {
	for _, r := range antreaRules(o) {
		for _, one := range r.Protocols {
			if one.ICMP == nil || one.ICMP.Type == nil || *one.ICMP.Type < 0 || *one.ICMP.Type > 255 {
				continue
			}
			first := *one.ICMP.Type << 8
			last := first | 255
			if code := one.ICMP.Code; code != nil && *code >= 0 && *code <= 255 {
				first |= *code
				last = first
			}
			cut(model.ICMP, first, last)
			cut(model.ICMPv6, first, last)
		}
	}
}
