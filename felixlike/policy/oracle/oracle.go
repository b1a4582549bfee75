package oracle

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// The grounds of a decision, in the order of evaluation.
const (
	TunnelEnd   Why = "no pod may send to a node's end of the tunnel"
	Self        Why = "a pod may always reach itself"
	OwnNode     Why = "no policy denies traffic between a pod and its own node"
	NotAPod     Why = "the address is not that of a pod that policy can select"
	NotIsolated Why = "no policy isolates the pod"
	RuleAllows  Why = "a rule allows it"
	RuleDenies  Why = "a rule denies it"
	Isolated    Why = "the pod is isolated and no rule allows it"
)

// Evaluate judges a packet.
func (c *Cluster) Evaluate(p Packet) Verdict {
	p.Source, p.Destination = p.Source.Unmap(), p.Destination.Unmap()
	source, destination := c.PodAt(p.Source), c.PodAt(p.Destination)
	switch {
	case source != nil && c.tunnelEnd(p):
		return Verdict{Egress: Decision{Why: TunnelEnd}, Ingress: Decision{Allowed: true, Why: NotAPod}}
	case source != nil && source == destination:
		return always(Self)
	case c.ownNode(destination, p.Source):
		return always(OwnNode)
	case source == nil && destination == nil && c.NodeAt(p.Source) != nil && c.NodeAt(p.Source) == c.NodeAt(p.Destination):
		return always(SameNode)
	}
	v := Verdict{
		Egress:  c.decideEnd(model.Egress, source, p.Source, p.Destination, destination, p),
		Ingress: c.decideEnd(model.Ingress, destination, p.Destination, p.Source, source, p),
	}
	if v.Ingress.Why == NotAPod && c.ownNode(source, p.Destination) {
		v.Ingress.Why = OwnNode
	}
	v.Allowed = v.Egress.Allowed && v.Ingress.Allowed
	return v
}

// decide asks the policies of one end, the subject, about its peer: tier by tier, until
// one decides. NetworkPolicies never deny the subject's own node, and it is not asked about
// packets from there.
func (c *Cluster) decide(d model.Direction, subject *corev1.Pod, peer netip.Addr, peerPod *corev1.Pod, p Packet) Decision {
	if subject == nil {
		return Decision{Allowed: true, Why: NotAPod}
	}
	q := question{direction: d, subject: subject, peer: peer, peerPod: peerPod, destination: c.PodAt(p.Destination), packet: p}
	if denied := c.denyIsolated(q); denied != nil {
		return *denied
	}
	if denied := c.denyLeaving(q); denied != nil {
		return *denied
	}
	var passed []RuleID
	for _, tier := range []model.Tier{model.TierAdmin, model.TierNetworkPolicy, model.TierBaseline} {
		if tier == model.TierNetworkPolicy {
			if c.ownNode(subject, peer) {
				if c.isolated(d, subject) {
					return Decision{Allowed: true, Why: OwnNode, Passed: passed}
				}
				continue
			}
			if decision := c.networkPolicies(d, subject, peer, peerPod, p); len(decision.Isolating) > 0 {
				decision.Passed = passed
				return decision
			}
			continue
		}
		rule, action := c.askAntrea(tier == model.TierBaseline, q)
		switch action {
		case antrea.Allow:
			return Decision{Allowed: true, Why: RuleAllows, Policy: rule.Policy, Rule: rule.Rule, Title: rule.Title, Passed: passed}
		case antrea.Drop, antrea.Reject:
			return Decision{Why: RuleDenies, Policy: rule.Policy, Rule: rule.Rule, Title: rule.Title, Passed: passed}
		case antrea.Pass: // it skips the ClusterNetworkPolicies too
			passed = append(passed, rule)
			continue
		}
		if decision := c.clusterTier(tier, q, &passed); decision != nil {
			return *decision
		}
	}
	if c.ownNode(subject, peer) {
		return Decision{Allowed: true, Why: OwnNode, Passed: passed}
	}
	return Decision{Allowed: true, Why: NotIsolated, Passed: passed}
}

// clusterTier asks the ClusterNetworkPolicies of a tier. It returns nil if they do not decide.
func (c *Cluster) clusterTier(tier model.Tier, q question, passed *[]RuleID) *Decision {
	rule, action := c.askTier(tier, q)
	switch action {
	case v1alpha2.ClusterNetworkPolicyRuleActionAccept:
		return &Decision{Allowed: true, Why: RuleAllows, Policy: rule.Policy, Rule: rule.Rule, Title: rule.Title, Passed: *passed}
	case v1alpha2.ClusterNetworkPolicyRuleActionDeny:
		return &Decision{Why: RuleDenies, Policy: rule.Policy, Rule: rule.Rule, Title: rule.Title, Passed: *passed}
	case v1alpha2.ClusterNetworkPolicyRuleActionPass:
		*passed = append(*passed, rule)
	}
	return nil
}

// isolated reports whether a NetworkPolicy isolates the subject in the direction.
func (c *Cluster) isolated(d model.Direction, subject *corev1.Pod) bool {
	return slices.ContainsFunc(c.Policies, func(p *networkingv1.NetworkPolicy) bool { return isolates(p, d) && c.targets(p, subject) })
}

// networkPolicies asks the NetworkPolicies that isolate the subject. They decide if
// there is one.
func (c *Cluster) networkPolicies(d model.Direction, subject *corev1.Pod, peer netip.Addr, peerPod *corev1.Pod, p Packet) Decision {
	decision := Decision{Why: Isolated}
	for _, policy := range c.Policies {
		if !isolates(policy, d) || !c.targets(policy, subject) {
			continue
		}
		id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: policy.Namespace, Name: policy.Name}
		decision.Isolating = append(decision.Isolating, id)
		rule, ok := c.allowedBy(policy, d, peer, peerPod, p)
		if ok && (!decision.Allowed || id.Compare(decision.Policy) < 0) {
			decision.Allowed, decision.Why, decision.Policy, decision.Rule = true, RuleAllows, id, rule
		}
	}
	slices.SortFunc(decision.Isolating, model.PolicyID.Compare)
	return decision
}

// allowedBy returns the first rule of the policy that allows the packet. With an invalid
// podSelector or policyTypes, the policy allows nothing in the directions that it isolates
// because of that.
func (c *Cluster) allowedBy(policy *networkingv1.NetworkPolicy, d model.Direction, peer netip.Addr, peerPod *corev1.Pod, p Packet) (string, bool) {
	if _, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector); err != nil || !declares(policy, d) {
		return "", false
	}
	// A port's name is looked up in the pod that the packet goes to.
	destination := peerPod
	if d == model.Ingress {
		destination = c.PodAt(p.Destination)
	}
	for i, r := range rulesOf(policy, d) {
		if c.anyPeer(r.From, policy.Namespace, peer, peerPod) && anyPort(r.Ports, destination, p) {
			return fmt.Sprintf("%s[%d]", d, i), true
		}
	}
	return "", false
}

// rulesOf returns the rules of a direction; egress rules have the same form
// as ingress rules under another name.
func rulesOf(policy *networkingv1.NetworkPolicy, d model.Direction) []networkingv1.NetworkPolicyIngressRule {
	if d == model.Ingress {
		return policy.Spec.Ingress
	}
	var rules []networkingv1.NetworkPolicyIngressRule
	for _, r := range policy.Spec.Egress {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{From: r.To, Ports: r.Ports})
	}
	return rules
}

// declares reports whether the policy is about the direction: by policyTypes,
// or by default ingress always and egress when there are egress rules.
func declares(policy *networkingv1.NetworkPolicy, d model.Direction) bool {
	types := policy.Spec.PolicyTypes
	if d == model.Ingress {
		return len(types) == 0 || slices.Contains(types, networkingv1.PolicyTypeIngress)
	}
	return slices.Contains(types, networkingv1.PolicyTypeEgress) || len(types) == 0 && len(policy.Spec.Egress) > 0
}

// isolates reports whether the policy isolates its pods in the direction: an
// unknown policyType isolates both.
func isolates(policy *networkingv1.NetworkPolicy, d model.Direction) bool {
	return declares(policy, d) || slices.ContainsFunc(policy.Spec.PolicyTypes, func(t networkingv1.PolicyType) bool {
		return t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress
	})
}
