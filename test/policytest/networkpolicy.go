package policytest

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// mistakes: one draw in this many makes a mistake of a kind
// that the API server would refuse, but a file may have.
const mistakes = 25

func networkPolicy(t *rapid.T, name, namespace string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	p.Spec.PodSelector = *selector(t)
	p.Spec.Ingress = times(t, "ingress rules", 0, 2, func(int) networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{From: peers(t), Ports: ports(t)}
	})
	p.Spec.Egress = times(t, "egress rules", 0, 2, func(int) networkingv1.NetworkPolicyEgressRule {
		return networkingv1.NetworkPolicyEgressRule{To: peers(t), Ports: ports(t)}
	})
	in, out := networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	p.Spec.PolicyTypes = pick(t, "policyTypes", nil, []networkingv1.PolicyType{in, out},
		[]networkingv1.PolicyType{in}, []networkingv1.PolicyType{out})
	if oneIn(t, mistakes, "unknown type") {
		p.Spec.PolicyTypes = append([]networkingv1.PolicyType{"Sideways"}, p.Spec.PolicyTypes...)
	}
	return p
}

func selector(t *rapid.T) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	if oneIn(t, 3, "matchLabels") {
		s.MatchLabels = map[string]string{pick(t, "key", "app", "tier"): pick(t, "value", "a", "b", "c")}
	}
	if oneIn(t, 3, "matchExpressions") {
		s.MatchExpressions = times(t, "expressions", 1, 2, func(int) metav1.LabelSelectorRequirement { return requirement(t) })
	}
	return s
}

func requirement(t *rapid.T) metav1.LabelSelectorRequirement {
	r := metav1.LabelSelectorRequirement{Key: pick(t, "key", "app", "tier"), Operator: pick(t, "operator",
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
	if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
		r.Values = times(t, "values", 1, 2, func(int) string { return pick(t, "value", "a", "b", "c") })
	}
	switch {
	case oneIn(t, mistakes, "unknown operator"):
		r.Operator = "Near"
	case oneIn(t, mistakes, "bad value"):
		r.Values = append(r.Values, "not a label value")
	}
	return r
}

func peers(t *rapid.T) []networkingv1.NetworkPolicyPeer {
	return times(t, "peers", 0, 3, func(int) networkingv1.NetworkPolicyPeer {
		var p networkingv1.NetworkPolicyPeer
		switch pick(t, "peer", "pods", "namespaces", "both", "block") {
		case "pods":
			p.PodSelector = selector(t)
		case "namespaces":
			p.NamespaceSelector = selector(t)
		case "both":
			p.PodSelector, p.NamespaceSelector = selector(t), selector(t)
		case "block":
			p.IPBlock = block(t)
		}
		switch {
		case oneIn(t, mistakes, "empty peer"):
			p = networkingv1.NetworkPolicyPeer{}
		case oneIn(t, mistakes, "block and selector"):
			p.IPBlock, p.PodSelector = block(t), selector(t)
		}
		return p
	})
}

// blocks overlap each other, the pods, the nodes and the outside; some have
// host bits set.
func blocks() []string {
	return []string{
		"10.10.0.0/24", "10.10.0.0/16", "10.10.0.8/29", "10.10.0.12/30", "10.10.1.0/25", "10.10.1.11/32", "10.10.1.77/24",
		"0.0.0.0/0", "203.0.113.0/24", "203.0.113.7/32", "192.168.50.0/24", "192.168.50.12/32",
		"fd00:10::/32", "fd00:10::/64", "fd00:10::8/125", "fd00:10:0:1::/64", "fd00:10:0:1::b/128",
		"::/0", "2001:db8::/32", "2001:db8::7/128", "fd00:50::/64", "fd00:50::12/128",
	}
}

func block(t *rapid.T) *networkingv1.IPBlock {
	b := &networkingv1.IPBlock{CIDR: pick(t, "cidr", blocks()...)}
	cidr := netip.MustParsePrefix(b.CIDR)
	var inside []string
	for _, s := range blocks() {
		if p := netip.MustParsePrefix(s); cidr.Contains(p.Addr()) && p.Bits() > cidr.Bits() {
			inside = append(inside, s)
		}
	}
	if len(inside) > 0 {
		b.Except = times(t, "excepts", 0, 2, func(int) string { return pick(t, "except", inside...) })
	}
	switch {
	case oneIn(t, mistakes, "bad cidr"):
		b.CIDR = pick(t, "cidr", "10.10.0.0", "10.10.0.0/33", "::ffff:10.10.0.0/112", "")
	case oneIn(t, mistakes, "bad except"):
		b.Except = append(b.Except, pick(t, "except", "172.16.0.0/16", "nowhere", b.CIDR))
	}
	return b
}

// portNames, portNumbers and protocols are those of pods, policies
// and packets.
func portNames() []string { return []string{"web", "dns", "alt"} }

func portNumbers() []uint16 { return []uint16{80, 81, 82, 53, 8080, 8085} }

func protocols() []corev1.Protocol {
	return []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
}

func ports(t *rapid.T) []networkingv1.NetworkPolicyPort {
	return times(t, "ports", 0, 3, func(int) networkingv1.NetworkPolicyPort {
		var p networkingv1.NetworkPolicyPort
		if !oneIn(t, 3, "default protocol") {
			protocol := pick(t, "protocol", protocols()...)
			p.Protocol = &protocol
		}
		switch pick(t, "port kind", "number", "name", "range", "none") {
		case "number":
			p.Port = number(t)
		case "name":
			name := intstr.FromString(pick(t, "name", portNames()...))
			p.Port = &name
		case "range":
			p.Port = number(t)
			end := p.Port.IntVal + int32(pick(t, "range", 0, 1, 20, 9000))
			p.EndPort = &end
		}
		if oneIn(t, mistakes, "bad port") {
			spoil(t, &p)
		}
		return p
	})
}

func number(t *rapid.T) *intstr.IntOrString {
	n := intstr.FromInt32(int32(pick(t, "number", portNumbers()...)))
	return &n
}

// spoil makes one of the mistakes that can be made with ports.
func spoil(t *rapid.T, p *networkingv1.NetworkPolicyPort) {
	protocol, low := corev1.Protocol("ICMP"), int32(7)
	bad := intstr.FromInt32(0)
	name := intstr.FromString("Not_A_Port")
	switch pick(t, "mistake", "protocol", "endPort", "number", "name") {
	case "protocol":
		p.Protocol = &protocol
	case "endPort":
		p.EndPort = &low
	case "number":
		p.Port = &bad
	case "name":
		p.Port = &name
	}
}
