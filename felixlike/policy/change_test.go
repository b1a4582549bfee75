package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
)

// clusterPod is the i-th pod of changeCluster. Its address is unique.
func clusterPod(namespace string, i int, node string, labels map[string]string) *corev1.Pod {
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

// appLabels are those of the i-th pod; no two pods have the same.
func appLabels(i int) map[string]string {
	return map[string]string{"app": fmt.Sprint(i % 10), "all": "yes", "pod": fmt.Sprint(i)}
}

// appPolicy allows the pods of the next application, and all pods of the cluster, to reach
// the pods of the i-th application. One group has every pod.
func appPolicy(i int) *networkingv1.NetworkPolicy {
	from, to := map[string]string{"app": fmt.Sprint(i % 10)}, map[string]string{"app": fmt.Sprint((i + 1) % 10)}
	p := peerPolicy(fmt.Sprintf("ns%d", i/10), fmt.Sprintf("policy%d", i), to, from)
	p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{
		PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"all": "yes"}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}},
	})
	return p
}

// changeCluster returns an engine with namespaces of 100 pods, ten of them local, and one
// policy for each ten pods. Another namespace has 1,000 remote pods and one local pod, all
// with one label and one policy.
func changeCluster(size int) *policy.Engine {
	e := policy.New("here")
	for i := range size {
		namespace := fmt.Sprintf("ns%d", i/100)
		if i%100 == 0 {
			e.SetNamespace(newNamespace(namespace + " team=blue"))
		}
		node := "there"
		if i%100 < 10 {
			node = "here"
		}
		e.SetPod(clusterPod(namespace, i, node, appLabels(i)))
	}
	for i := range size / 10 {
		e.SetNetworkPolicy(appPolicy(i))
	}
	same := map[string]string{"app-1": "scale-1"}
	e.SetNetworkPolicy(peerPolicy("big", "same", same, same))
	e.SetPod(clusterPod("big", size, "here", same))
	for i := range 1000 {
		e.SetPod(clusterPod("big", size+1+i, "there", same))
	}
	e.Flush()
	return e
}

// smallChange is a small change of a cluster, and its opposite.
type smallChange struct {
	name string
	make func(e *policy.Engine, there bool)
}

// changes returns the changes of a changeCluster of that size. Each starts from the
// unchanged cluster.
func changes(size int) []smallChange {
	relabelled := [2]*corev1.Pod{clusterPod("ns1", 150, "there", appLabels(150)), clusterPod("ns1", 150, "there", appLabels(151))}
	same := clusterPod("big", size+5000, "there", map[string]string{"app-1": "scale-1"})
	other := clusterPod("ns2", size+5001, "there", appLabels(size+5001))
	here := clusterPod("ns2", size+5002, "here", appLabels(size+5002))
	policies := [2]*networkingv1.NetworkPolicy{appPolicy(15), appPolicy(15)}
	policies[1].Spec.Ingress[0].From = policies[1].Spec.Ingress[0].From[1:]
	namespaces := [2]*corev1.Namespace{newNamespace("ns3 team=blue"), newNamespace("ns3 team=red")}
	set := func(p *corev1.Pod) func(*policy.Engine, bool) {
		return func(e *policy.Engine, there bool) {
			if there {
				e.SetPod(p)
			} else {
				e.DeletePod(policytest.PodID(p))
			}
		}
	}
	index := map[bool]int{true: 1}
	return []smallChange{
		{"pod-label", func(e *policy.Engine, there bool) { e.SetPod(relabelled[index[there]]) }},
		{"member-of-1000", set(same)},
		{"remote-pod", set(other)},
		{"local-pod", set(here)},
		{"policy-rule", func(e *policy.Engine, there bool) { e.SetNetworkPolicy(policies[index[there]]) }},
		{"policy", func(e *policy.Engine, there bool) {
			if there {
				e.DeleteNetworkPolicy("ns1", "policy15")
			} else {
				e.SetNetworkPolicy(policies[0])
			}
		}},
		{"attachment", func(e *policy.Engine, there bool) {
			var addresses []netip.Addr
			if there {
				addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 0xff, 0, 1})}
			}
			e.SetLocalAddresses(model.PodID{Namespace: "ns1", Name: "pod100"}, addresses)
		}},
		{"namespace-label", func(e *policy.Engine, there bool) { e.SetNamespace(namespaces[index[there]]) }},
	}
}

// TestChangesCostTheSameInAnyCluster counts the work of changes in clusters of
// 1,000 and of 100,000 pods.
func TestChangesCostTheSameInAnyCluster(t *testing.T) {
	sizes := [2]int{1_000, 100_000}
	if testing.Short() {
		sizes[1] = 10_000
	}
	var engines [2]*policy.Engine
	for i, size := range sizes {
		engines[i] = changeCluster(size)
	}
	// There and back, a change of a namespace's label looks at each of its 100
	// pods, and the label set of each; other changes are about a few pods.
	limits := map[string]uint64{
		"pod-label": 20, "member-of-1000": 20, "remote-pod": 20, "local-pod": 25,
		"attachment": 25, "policy-rule": 60, "policy": 80, "namespace-label": 900,
	}
	for n := range changes(sizes[0]) {
		var done [2]policy.Work
		var name string
		for i, e := range engines {
			c := changes(sizes[i])[n]
			name = c.name
			before := e.Work()
			for _, there := range []bool{true, false} {
				c.make(e, there)
				if len(e.Flush()) == 0 {
					t.Errorf("%s changes nothing", name)
				}
			}
			done[i] = e.Work().Minus(before)
		}
		t.Logf("%s there and back: %+v", name, done[1])
		if done[0] != done[1] {
			t.Errorf("%s: %+v of work in a cluster of %d pods, %+v in one of %d", name, done[0], sizes[0], done[1], sizes[1])
		}
		if total := done[1].Total(); total > limits[name] {
			t.Errorf("%s: %d of work, want at most %d", name, total, limits[name])
		}
	}
}

// TestOwnLabelBesideACommonOne: all pods and selectors have one common label, and each pair
// of them a label of its own. A pod must not try all selectors, nor a selector all pods, in
// any order of arrival.
func TestOwnLabelBesideACommonOne(t *testing.T) {
	const size = 2000
	labels := func(i int) map[string]string {
		// "app" sorts before the label that differs between pods, "role" after it.
		return map[string]string{"app": "db", "pod": fmt.Sprint(i), "role": "replica"}
	}
	for _, podsFirst := range []bool{true, false} {
		e := policy.New("here")
		pods := func() {
			for i := range size {
				e.SetPod(clusterPod("x", i, "here", labels(i)))
			}
		}
		if podsFirst {
			pods()
		}
		for i := range size {
			e.SetNetworkPolicy(peerPolicy("x", fmt.Sprint(i), labels(i), labels((i+1)%size)))
		}
		if !podsFirst {
			pods()
		}
		e.Flush()
		if w := e.Work(); w.Matches > 6*size {
			t.Errorf("pods first %v: %d selectors tried for %d pods and %d policies", podsFirst, w.Matches, size, size)
		}
	}
}

// TestRareLabelsInManyNamespaces: policies select a label of their own in all namespaces.
// They must not look into each namespace.
func TestRareLabelsInManyNamespaces(t *testing.T) {
	const size = 2000
	for _, podsFirst := range []bool{true, false} {
		e := policy.New("here")
		pods := func() {
			for i := range size {
				e.SetNamespace(newNamespace(fmt.Sprintf("ns%d", i)))
				e.SetPod(clusterPod(fmt.Sprintf("ns%d", i), i, "here", map[string]string{"app": fmt.Sprint(i), "all": "yes"}))
			}
		}
		if podsFirst {
			pods()
		}
		for i := range size {
			p := peerPolicy(fmt.Sprintf("ns%d", i), "p", nil, map[string]string{"all": "yes", "app": fmt.Sprint((i + 1) % size)})
			p.Spec.Ingress[0].From[0].NamespaceSelector = &metav1.LabelSelector{}
			e.SetNetworkPolicy(p)
		}
		if !podsFirst {
			pods()
		}
		e.Flush()
		if w := e.Work(); w.Total() > 20*size {
			t.Errorf("pods first %v: %+v of work for %d namespaces, pods and policies", podsFirst, w, size)
		}
	}
}
