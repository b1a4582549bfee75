package policytest

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
)

// crowdedRules is the number of rules of equal ports that backend openflow needs to give their ports a bit (policyflows).
const crowdedRules = 70

// Crowd adds a policy with many rules of equal ports to one cluster in four. The other policies of its pods remain.
func Crowd(t *rapid.T, c *oracle.Cluster) {
	if len(c.Namespaces) == 0 || !oneIn(t, 4, "crowd") {
		return
	}
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "crowded", Namespace: pick(t, "crowded", c.Namespaces...).Name}}
	var all []networkingv1.NetworkPolicyPort
	for n, protocol := range protocols()[:2] {
		from, end := intstr.FromInt32([]int32{81, 53}[n]), int32(8084)
		all = append(all, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &from, EndPort: &end})
	}
	some := times(t, "crowded peers", 2, 4, func(int) []networkingv1.NetworkPolicyPeer { return peers(t) })
	for n := range crowdedRules {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: some[n%len(some)], Ports: all})
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: some[(n+1)%len(some)], Ports: all})
	}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	c.Policies = append(c.Policies, p)
}
