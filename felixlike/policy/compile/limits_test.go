package compile

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestLimits: a direction at a limit applies. A direction above it has no rules, still
// isolates, and is reported with its field. The other direction applies.
func TestLimits(t *testing.T) {
	rule := func(peers, ports int, peer func(i int) networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyIngressRule {
		var r networkingv1.NetworkPolicyIngressRule
		for i := range peers {
			r.From = append(r.From, peer(i))
		}
		for i := range ports {
			port := intstr.FromInt32(int32(2*i + 1))
			r.Ports = append(r.Ports, networkingv1.NetworkPolicyPort{Port: &port})
		}
		return r
	}
	block := func(i int) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("%d.%d.%d.%d/32", 20+i>>15, i>>7&255, i&127, 1)}}
	}
	eachFamily := func(i int) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: [...]string{"192.0.2.0/24", "2001:db8::/32"}[i]}}
	}
	selector := func(i int) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("a", i)}}}
	}
	for name, c := range map[string]struct {
		rules  []networkingv1.NetworkPolicyIngressRule
		reason string
	}{
		"CIDRs":                           {[]networkingv1.NetworkPolicyIngressRule{rule(MaxPrefixes, 0, block)}, ""},
		"too many CIDRs":                  {[]networkingv1.NetworkPolicyIngressRule{rule(MaxPrefixes+1, 0, block)}, "30001 CIDRs"},
		"ports":                           {[]networkingv1.NetworkPolicyIngressRule{rule(2, 5000, selector)}, ""},
		"too many combinations":           {[]networkingv1.NetworkPolicyIngressRule{rule(2, 5000, selector), rule(0, 1, nil)}, "10001 combinations"},
		"selectors":                       {[]networkingv1.NetworkPolicyIngressRule{rule(1000, 0, selector), rule(1000, 1, selector)}, ""},
		"ports of a block of each family": {[]networkingv1.NetworkPolicyIngressRule{rule(2, MaxAlternatives, eachFamily)}, ""},
		"too many selectors":              {[]networkingv1.NetworkPolicyIngressRule{rule(1001, 0, selector)}, "1001 distinct selectors"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}}
			p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
			p.Spec.Ingress = c.rules
			p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
			got, problems := NetworkPolicy(p, GroupIDHash)
			if !got.Ingress || !got.Egress || len(got.Model.Egress) != 1 {
				t.Errorf("isolates ingress %t, egress %t, with %d egress rules", got.Ingress, got.Egress, len(got.Model.Egress))
			}
			if c.reason == "" {
				if len(problems) > 0 || len(got.Model.Ingress) != len(c.rules) {
					t.Errorf("%v, %d rules", problems, len(got.Model.Ingress))
				}
				return
			}
			if len(problems) != 1 || problems[0].Field != "spec.ingress" || !strings.Contains(problems[0].Reason, c.reason) ||
				len(got.Model.Ingress) != 0 || len(got.Groups) != 0 {
				t.Errorf("%v, %d rules, %d groups", problems, len(got.Model.Ingress), len(got.Groups))
			}
		})
	}
}
