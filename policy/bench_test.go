package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/policy"
)

// benchPod is the i-th pod, alone with its address.
func benchPod(namespace string, i int, node string, labels map[string]string) *corev1.Pod {
	a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	p := onNode(newPod(fmt.Sprintf("%s/pod%d", namespace, i), a.String()), node)
	p.Labels = labels
	return p
}

// peerPolicy allows pods of one label to reach those of another.
func peerPolicy(namespace, name string, target, peer map[string]string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.PodSelector.MatchLabels = target
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: peer}}},
	}}
	return p
}

// BenchmarkNetpolPerPod loads 10,000 pods of one namespace in 5,000 pairs,
// each with its own label and its own policy, all on this node.
func BenchmarkNetpolPerPod(b *testing.B) {
	const pairs = 5000
	var pods []*corev1.Pod
	var policies []*networkingv1.NetworkPolicy
	for i := range 2 * pairs {
		pods = append(pods, benchPod("x", i, "here", map[string]string{"pair": fmt.Sprint(i / 2)}))
	}
	for i := range pairs {
		pair := map[string]string{"pair": fmt.Sprint(i)}
		policies = append(policies, peerPolicy("x", fmt.Sprintf("pair%d", i), pair, pair))
	}
	for _, order := range []string{"pods-first", "policies-first"} {
		b.Run(order, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e := policy.New("here")
				set := func() {
					for _, p := range policies {
						e.SetNetworkPolicy(p)
					}
				}
				if order == "policies-first" {
					set()
				}
				for _, p := range pods {
					e.SetPod(p)
				}
				if order == "pods-first" {
					set()
				}
				if n := len(e.Flush()); n != 2*pairs+2*pairs {
					b.Fatalf("%d updates", n)
				}
			}
		})
	}
}

// BenchmarkOnePodChange changes the label of one pod back and forth in
// clusters of several sizes, of 100 pods a namespace and one policy for ten
// pods: it leaves one group and enters another.
func BenchmarkOnePodChange(b *testing.B) {
	for _, size := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("pods=%d", size), func(b *testing.B) {
			e := policy.New("here")
			app := func(i int) map[string]string {
				return map[string]string{"app": fmt.Sprint(i % 10), "all": "yes", "pod": fmt.Sprint(i)}
			}
			for i := range size {
				namespace := fmt.Sprintf("ns%d", i/100)
				if i%100 == 0 {
					e.SetNamespace(newNamespace(namespace + " team=blue"))
				}
				node := "there"
				if i%100 < 10 {
					node = "here"
				}
				e.SetPod(benchPod(namespace, i, node, app(i)))
			}
			for i := range size / 10 {
				namespace := fmt.Sprintf("ns%d", i/10)
				from, to := map[string]string{"app": fmt.Sprint(i % 10)}, map[string]string{"app": fmt.Sprint((i + 1) % 10)}
				p := peerPolicy(namespace, fmt.Sprintf("policy%d", i), to, from)
				p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{
					PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"all": "yes"}},
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}},
				})
				e.SetNetworkPolicy(p)
			}
			e.Flush()
			versions := [2]*corev1.Pod{benchPod("ns1", 150, "there", app(150)), benchPod("ns1", 150, "there", app(151))}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e.SetPod(versions[(i+1)%2])
				if n := len(e.Flush()); n != 2 {
					b.Fatalf("%d updates", n)
				}
			}
		})
	}
}
