package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
)

// large returns a cluster in which each pod has a label of its own, and a policy for all.
func large(namespaces, pods int) (control.Objects, Change) {
	o := control.Objects{Node: "n1", Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}}
	for n := range namespaces {
		name := fmt.Sprintf("ns%d", n)
		o.Namespaces = append(o.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		for i := range pods {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fmt.Sprintf("p%d", i)}}
			pod.Labels = map[string]string{"app": "a", "statefulset.kubernetes.io/pod-name": pod.Name}
			pod.Spec.NodeName = "n1"
			pod.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("10.%d.%d.%d", n, i/250, i%250+1)}}
			o.Pods = append(o.Pods, pod)
		}
	}
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	p.Spec.Tier, p.Spec.Subject.Namespaces = v1alpha2.AdminTier, &metav1.LabelSelector{}
	p.Spec.Ingress = []v1alpha2.ClusterNetworkPolicyIngressRule{{
		Action: v1alpha2.ClusterNetworkPolicyRuleActionDeny,
		From: []v1alpha2.ClusterNetworkPolicyIngressPeer{{Pods: &v1alpha2.NamespacedPod{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		}}},
	}}
	return o, Change{SetCluster: []*v1alpha2.ClusterNetworkPolicy{p}}
}

// TestAlikeButForOtherLabels: labels that no policy names do not make pods different.
func TestAlikeButForOtherLabels(t *testing.T) {
	o, change := large(3, 50)
	p, err := Of(t.Context(), o, change)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Verdicts) != 9 || len(p.Verdicts[0].From) != 50 || len(p.Verdicts[0].To) != 50 {
		t.Errorf("%d differences, wanted one for each pair of namespaces", len(p.Verdicts))
	}
}

// TestBlocksOfPeersTellPodsApart: a policy of a peer that allows one of two pods by its
// address, and does not change, makes them different.
func TestBlocksOfPeersTellPodsApart(t *testing.T) {
	o, _ := large(2, 2)
	for _, pod := range o.Pods {
		pod.Labels["app"] = pod.Namespace
	}
	only := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: "only-p1"}}
	only.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	only.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.2/32"}}}}}
	o.Policies = append(o.Policies, only)
	isolate := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns0", Name: "isolate"}}
	isolate.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	p, err := Of(t.Context(), o, Change{Set: []*networkingv1.NetworkPolicy{isolate}})
	if err != nil {
		t.Fatal(err)
	}
	denied := false
	for _, d := range p.Verdicts {
		fromNS1 := slices.ContainsFunc(d.From, func(pod string) bool { return strings.HasPrefix(pod, "ns1/") })
		if fromNS1 && slices.Contains(d.To, "ns0/p0") {
			t.Errorf("ns0/p0 was never reached from ns1: %+v", d)
		}
		denied = denied || fromNS1 && slices.Contains(d.To, "ns0/p1")
	}
	if !denied {
		t.Errorf("no difference from ns1 to ns0/p1: %+v", p.Verdicts)
	}
}

// TestClusterOfManyNetNamespaces: the memory for a cluster grows with its NetNamespaces, and not with their square.
func TestClusterOfManyNetNamespaces(t *testing.T) {
	allocated := func(namespaces int) int64 {
		o := control.Objects{}
		for i := range namespaces {
			name, number := fmt.Sprintf("ns%d", i), int64(i)
			o.Antrea.NetNamespaces = append(o.Antrea.NetNamespaces, &antrea.NetNamespace{ObjectMeta: metav1.ObjectMeta{Name: name}, NetName: name, NetID: &number})
		}
		policies := policiesOf(o)
		if got := len(clusterOf(o, policies).Antrea.NetNamespaces); got != namespaces {
			t.Errorf("%d NetNamespaces, wanted %d", got, namespaces)
		}
		return testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				clusterOf(o, policies)
			}
		}).AllocedBytesPerOp()
	}
	if few, many := allocated(500), allocated(4000); many > 16*few {
		t.Errorf("%d bytes for 4000 NetNamespaces, %d for 500", many, few)
	}
}

// TestInterrupted: whoever does not want to wait ends it.
func TestInterrupted(t *testing.T) {
	o, change := large(1, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Of(ctx, o, change); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func BenchmarkOf(b *testing.B) {
	for _, namespaces := range []int{10, 50} {
		b.Run(fmt.Sprintf("namespaces=%d/pods=%d", namespaces, 20*namespaces), func(b *testing.B) {
			o, change := large(namespaces, 20)
			for b.Loop() {
				if _, err := Of(b.Context(), o, change); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
