package policy_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/model"
)

// TestLeavingPods: a pod with a deletion timestamp still runs, and keeps its address.
func TestLeavingPods(t *testing.T) {
	s := newState(t)
	s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`))
	s.SetPod(newPod("x/a", "10.0.0.1"))
	s.flush()
	leaving := newPod("x/a", "10.0.0.1")
	now := metav1.Now()
	leaving.DeletionTimestamp = &now
	s.SetPod(leaving)
	equal(t, "while it is being deleted", s.flush(), "")
	s.DeletePod(model.PodID{Namespace: "x", Name: "a"})
	equal(t, "gone", s.flush(), "endpoint x/a removed\npolicy x/p removed\ngroup removed")
}

// TestTwoPodsOfOneAddress: while both pods exist, the address is in the groups of both. A
// finished pod has no address, even if its status has one.
func TestTwoPodsOfOneAddress(t *testing.T) {
	groups := func(s *state) string {
		var of []string
		for _, g := range s.model.Groups {
			for m := range g.Members {
				of = append(of, g.Description+" has "+m.String())
			}
		}
		slices.Sort(of)
		return strings.Join(of, "\n")
	}
	const both = "pods app=new in namespace x has 10.0.1.1\npods app=old in namespace x has 10.0.1.1"
	const onlyNew = "pods app=new in namespace x has 10.0.1.1"
	for name, leave := range map[string]func(s *state, old *corev1.Pod){
		"deleted": func(s *state, _ *corev1.Pod) { s.DeletePod(model.PodID{Namespace: "x", Name: "old"}) },
		"done": func(s *state, old *corev1.Pod) {
			old = old.DeepCopy()
			old.Status.Phase = corev1.PodSucceeded
			s.SetPod(old)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t)
			s.SetPod(newPod("x/target", "10.0.0.1"))
			s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: old}}}]}, {from: [{podSelector: {matchLabels: {app: new}}}]}]}`))
			old := onNode(newPod("x/old app=old", "10.0.1.1"), "there")
			s.SetPod(old)
			s.SetPod(onNode(newPod("x/new app=new", "10.0.1.1"), "there"))
			s.flush()
			equal(t, "both", groups(s), both)
			leave(s, old)
			s.flush()
			equal(t, "one", groups(s), onlyNew)
		})
	}
}

// TestUnresolvedPorts: named ports of rules that no pod declares are reported.
func TestUnresolvedPorts(t *testing.T) {
	s := newState(t)
	s.SetNamespace(newNamespace("x"))
	s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{ports: [{port: web}, {port: dns, protocol: UDP}, {port: 80}]}], egress: [{to: [{podSelector: {matchLabels: {app: a}}}, {podSelector: {matchLabels: {app: b}}}], ports: [{port: db}]}]}`))
	check := func(when string, want ...string) {
		t.Helper()
		s.flush()
		if got := s.UnresolvedPorts().OfNetwork("x", "p"); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	check("a policy that applies to nobody")
	s.SetPod(newPod("x/a app=a", "10.0.0.1"))
	check("at first", "tcp/db", "tcp/web", "udp/dns")
	s.SetPod(withPort(newPod("x/a app=a", "10.0.0.1"), "dns", 53, corev1.ProtocolTCP))
	check("another protocol", "tcp/db", "tcp/web", "udp/dns")
	s.SetPod(withPort(withPort(newPod("x/a app=a", "10.0.0.1"), "web", 80, ""), "dns", 53, corev1.ProtocolUDP))
	check("two are declared", "tcp/db")
	s.SetPod(withPort(onNode(newPod("x/b app=b", "10.0.1.1"), "there"), "db", 5432, ""))
	check("one of two peers declares it")
	s.DeleteNetworkPolicy("x", "p")
	check("deleted")
}

// TestUnresolvedClusterPorts: a name is resolved by a pod that declares it for any protocol.
func TestUnresolvedClusterPorts(t *testing.T) {
	for _, tier := range []v1alpha2.Tier{v1alpha2.AdminTier, v1alpha2.BaselineTier} {
		s := newState(t)
		s.SetNamespace(newNamespace("x"))
		p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		p.Spec.Tier, p.Spec.Subject.Namespaces = tier, &metav1.LabelSelector{}
		p.Spec.Ingress = []v1alpha2.ClusterNetworkPolicyIngressRule{{
			Action:    v1alpha2.ClusterNetworkPolicyRuleActionDeny,
			From:      []v1alpha2.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}},
			Protocols: []v1alpha2.ClusterNetworkPolicyProtocol{{DestinationNamedPort: "web"}, {DestinationNamedPort: "dns"}},
		}}
		if problems := s.SetClusterNetworkPolicy(p); len(problems) > 0 {
			t.Fatal(problems)
		}
		check := func(when string, want ...string) {
			t.Helper()
			s.flush()
			if got := s.UnresolvedPorts().OfCluster("p"); !slices.Equal(got, want) {
				t.Errorf("%s, %s: %v, want %v", tier, when, got, want)
			}
		}
		check("a policy that applies to nobody")
		s.SetPod(newPod("x/a app=a", "10.0.0.1"))
		check("at first", "dns", "web")
		s.SetPod(withPort(newPod("x/a app=a", "10.0.0.1"), "dns", 53, corev1.ProtocolUDP))
		check("one is declared", "web")
		s.DeleteClusterNetworkPolicy("p")
		check("deleted")
	}
}
