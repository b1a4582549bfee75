package compile

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// NetworkPolicy compiles a NetworkPolicy. It reports each invalid part and leaves it out,
// so that it allows nothing.
func NetworkPolicy(object *networkingv1.NetworkPolicy, ids GroupIDs) (*Policy, []model.Problem) {
	c := compiler{
		Report:    Report{Object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: object.Namespace, Name: object.Name}},
		ids:       ids,
		namespace: object.Namespace,
	}
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: object.Namespace, Name: object.Name}
	out := &Policy{Model: model.Policy{ID: id}}
	c.noNodeAnnotations(object.Annotations)
	out.Staged = c.staged(object.Annotations)
	pods, errs := label.Compile(&object.Spec.PodSelector, "spec.podSelector")
	for _, err := range errs {
		c.Add(err.Field, "%s; all pods of the namespace are isolated, and no rule applies", err.ErrorBody())
	}
	if len(errs) > 0 {
		pods = label.Everything()
	}
	c.targets = []Selection{{Namespace: object.Namespace, Pods: pods}}
	out.Targets = c.targets

	inDeclared, outDeclared := c.directions(object, out)
	ingress, egress := c.ingress(object.Spec.Ingress), c.egress(object.Spec.Egress)
	if len(errs) > 0 {
		return out, c.Problems
	}
	if inDeclared {
		out.Model.Ingress = c.bounded(model.Ingress, ingress)
	}
	if outDeclared {
		out.Model.Egress = c.bounded(model.Egress, egress)
	}
	c.closeCollided(&out.Model)
	c.logging(object.Annotations, &out.Model)
	out.Groups = c.used(&out.Model)
	return out, c.Problems
}

// directions sets the directions that the policy isolates. It returns the directions that
// policyTypes, or their default, declare. An unknown type isolates both directions,
// because either may be meant.
func (c *compiler) directions(object *networkingv1.NetworkPolicy, out *Policy) (ingress, egress bool) {
	unknown := false
	for i, t := range object.Spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			ingress = true
		case networkingv1.PolicyTypeEgress:
			egress = true
		default:
			unknown = true
			c.Add(indexed("spec.policyTypes", i), "unsupported policy type %q: must be Ingress or Egress; both directions are isolated", t)
		}
	}
	if len(object.Spec.PolicyTypes) == 0 {
		ingress, egress = true, len(object.Spec.Egress) > 0
	}
	out.Ingress, out.Egress = ingress || unknown, egress || unknown
	return ingress, egress
}

// ingress compiles ingress rules, one to one. The packet goes to a pod of the policy, so
// named ports are looked up in these pods.
func (c *compiler) ingress(rules []networkingv1.NetworkPolicyIngressRule) []model.Rule {
	var out []model.Rule
	for i, r := range rules {
		name := indexed("ingress", i)
		peers := c.peers(r.From, "spec."+name+".from")
		ports := c.ports(r.Ports, "spec."+name+".ports")
		out = c.rule(out, model.Rule{Name: name, Action: model.Allow}, peers, ports, c.named(ports, c.targets...))
	}
	return out
}

// egress compiles egress rules.
func (c *compiler) egress(rules []networkingv1.NetworkPolicyEgressRule) []model.Rule {
	var out []model.Rule
	for i, r := range rules {
		name := indexed("egress", i)
		peers := c.peers(r.To, "spec."+name+".to")
		ports := c.ports(r.Ports, "spec."+name+".ports")
		out = c.egressRule(out, model.Rule{Name: name, Action: model.Allow}, peers, ports)
	}
	return out
}

// ClosedNetworkPolicy returns the policy that replaces a NetworkPolicy that could not be
// decoded. It isolates, in both directions and without rules, the pods that the selector
// matches, or all pods of the namespace if the selector is nil or invalid.
func ClosedNetworkPolicy(namespace, name string, podSelector *metav1.LabelSelector) *Policy {
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: namespace, Name: name}
	c := &Policy{Model: model.Policy{ID: id}, Targets: []Selection{{Namespace: namespace, Pods: label.Everything()}}, Ingress: true, Egress: true}
	if podSelector != nil {
		if pods, errs := label.Compile(podSelector, "spec.podSelector"); len(errs) == 0 {
			c.Targets[0].Pods = pods
		}
	}
	return c
}
