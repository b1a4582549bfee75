package oracle

import (
	"fmt"
	"slices"

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
		Egress:  c.question(model.Egress, p, source, destination).decide(),
		Ingress: c.question(model.Ingress, p, source, destination).decide(),
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
func (q question) decide() Decision {
	switch {
	case q.node != nil:
		return q.decideNode()
	case q.subject == nil:
		return Decision{Allowed: true, Why: NotAPod}
	}
	if denied := q.denyIsolated(); denied != nil {
		return *denied
	}
	if denied := q.denyLeaving(); denied != nil {
		return *denied
	}
	ownNode := q.cluster.ownNode(q.subject, q.peer)
	var passed []RuleID
	for _, tier := range []model.Tier{model.TierAdmin, model.TierNetworkPolicy, model.TierBaseline} {
		if tier == model.TierNetworkPolicy {
			if ownNode {
				if q.isolated() {
					return Decision{Allowed: true, Why: OwnNode, Passed: passed}
				}
				continue
			}
			if decision := q.networkPolicies(); len(decision.Isolating) > 0 {
				decision.Passed = passed
				return decision
			}
			continue
		}
		rule, action := q.askAntrea(tier == model.TierBaseline)
		switch action {
		case antrea.Allow:
			return Decision{Allowed: true, Why: RuleAllows, Policy: rule.Policy, Rule: rule.Rule, Title: rule.Title, Passed: passed}
		case antrea.Drop, antrea.Reject:
			return Decision{Why: RuleDenies, Policy: rule.Policy, Rule: rule.Rule, Title: rule.Title, Passed: passed}
		case antrea.Pass: // it skips the ClusterNetworkPolicies too
			passed = append(passed, rule)
			continue
		}
		if decision := q.clusterTier(tier, &passed); decision != nil {
			return *decision
		}
	}
	if ownNode {
		return Decision{Allowed: true, Why: OwnNode, Passed: passed}
	}
	return Decision{Allowed: true, Why: NotIsolated, Passed: passed}
}

// clusterTier asks the ClusterNetworkPolicies of a tier. It returns nil if they do not decide.
func (q question) clusterTier(tier model.Tier, passed *[]RuleID) *Decision {
	rule, action := q.askTier(tier)
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
func (q question) isolated() bool {
	return slices.ContainsFunc(q.cluster.Policies, q.isolating)
}

// isolating reports whether a NetworkPolicy is one that isolates the subject in the direction.
func (q question) isolating(p *networkingv1.NetworkPolicy) bool {
	return !q.cluster.staged(p.Annotations) && isolates(p, q.direction) && targets(p, q.subject)
}

// networkPolicies asks the NetworkPolicies that isolate the subject. They decide if
// there is one.
func (q question) networkPolicies() Decision {
	decision := Decision{Why: Isolated}
	for _, policy := range q.cluster.Policies {
		if !q.isolating(policy) {
			continue
		}
		id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: policy.Namespace, Name: policy.Name}
		decision.Isolating = append(decision.Isolating, id)
		rule, ok := q.allowedBy(policy)
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
func (q question) allowedBy(policy *networkingv1.NetworkPolicy) (string, bool) {
	if _, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector); err != nil || !declares(policy, q.direction) {
		return "", false
	}
	for i, r := range rulesOf(policy, q.direction) {
		if q.anyPeer(r.From, policy.Namespace) && anyPort(r.Ports, q.destination, q.packet) {
			return fmt.Sprintf("%s[%d]", q.direction, i), true
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
