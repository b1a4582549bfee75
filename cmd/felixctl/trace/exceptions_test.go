package trace

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// TestExceptionsHideNothing: several policies with overlapping blocks apply to one pod
// in both directions. One policy may allow addresses that another one excepts. Every
// backend judges addresses at both sides of all boundaries as the oracle does.
func TestExceptionsHideNothing(t *testing.T) {
	blocks := []networkingv1.IPBlock{
		{CIDR: "0.0.0.0/0", Except: []string{"203.0.113.0/24", "198.51.100.7/32"}},
		{CIDR: "203.0.113.0/24", Except: []string{"203.0.113.0/25", "203.0.113.128/26"}},
		{CIDR: "203.0.113.0/26", Except: []string{"203.0.113.8/29", "203.0.113.10/32"}},
		{CIDR: "203.0.113.12/30"},
		{CIDR: "::/0", Except: []string{"2001:db8::/32", "8000::/1"}},
		{CIDR: "2001:db8::/33", Except: []string{"2001:db8::/64"}},
		{CIDR: "2001:db8::/96", Except: []string{"2001:db8::7/128"}},
		{CIDR: "2001:db8::4/126"},
	}
	addresses := boundaries(t, blocks)
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[bool]int{}
	for range 12 {
		c := exceptionCluster(r, blocks)
		for _, backend := range backends() {
			sites := sitesOf(t, c, backend)
			for _, a := range addresses {
				pod := netip.MustParseAddr("10.10.0.10")
				if a.Is6() {
					pod = netip.MustParseAddr("fd00:10::a")
				}
				for _, p := range []Packet{
					{Source: a, Destination: pod, Protocol: model.TCP, Port: 80},
					{Source: pod, Destination: a, Protocol: model.TCP, Port: 80},
				} {
					judged, err := Judge(p, c, nil)
					if err != nil {
						t.Fatal(err)
					}
					path, err := Follow(p, sites, nil)
					if err != nil {
						t.Fatalf("%s: %s: %v", backend, p, err)
					}
					if what := Compare(judged, path); what != "" {
						t.Fatalf("%s: %s: %s\n%s", backend, p, what, stepsText(path))
					}
					seen[judged.Through]++
				}
			}
		}
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("one-sided: %v", seen)
	}
}

// boundaries returns the addresses at both sides of each end of the blocks.
func boundaries(t *testing.T, blocks []networkingv1.IPBlock) []netip.Addr {
	t.Helper()
	seen := map[netip.Addr]bool{}
	var all []netip.Addr
	for _, b := range blocks {
		for _, text := range append([]string{b.CIDR}, b.Except...) {
			m := model.Member{Prefix: netip.MustParsePrefix(text)}
			for _, a := range []netip.Addr{m.Range().From(), m.Range().From().Prev(), m.Range().To(), m.Range().To().Next()} {
				if a.IsValid() && !seen[a] && !a.IsUnspecified() && !a.IsMulticast() && a != netip.MustParseAddr("255.255.255.255") {
					seen[a] = true
					all = append(all, a)
				}
			}
		}
	}
	return all
}

// exceptionCluster is one pod with some of the blocks in each of three policies.
func exceptionCluster(r *rand.Rand, blocks []networkingv1.IPBlock) *oracle.Cluster {
	c := &oracle.Cluster{
		Nodes: []*corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Spec:       corev1.NodeSpec{PodCIDR: "10.10.0.0/24", PodCIDRs: []string{"10.10.0.0/24", "fd00:10::/64"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "192.168.50.11"}, {Type: corev1.NodeInternalIP, Address: "fd00:50::11"},
			}},
		}},
		Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "x"}}},
		Pods: []*corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a"}, Spec: corev1.PodSpec{NodeName: "n1"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.10.0.10", PodIPs: []corev1.PodIP{{IP: "10.10.0.10"}, {IP: "fd00:10::a"}}},
		}},
	}
	for _, name := range []string{"one", "two", "three"} {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}}
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
		peers := func() []networkingv1.NetworkPolicyPeer {
			var all []networkingv1.NetworkPolicyPeer
			for _, i := range r.Perm(len(blocks))[:1+r.IntN(2)] {
				all = append(all, networkingv1.NetworkPolicyPeer{IPBlock: &blocks[i]})
			}
			return all
		}
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers()}}
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers()}}
		c.Policies = append(c.Policies, p)
	}
	return c
}
