package policy_test

import (
	"net/netip"
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
	equal(t, "gone", s.flush(), "endpoint x/a removed\npolicy networkpolicy/x/p removed\ngroup removed")
}

// groups lists the members of all groups.
func groups(s *state) string {
	var of []string
	for _, g := range s.model.Groups {
		for m := range g.Members {
			of = append(of, g.Description+" has "+m.String())
		}
	}
	slices.Sort(of)
	return strings.Join(of, "\n")
}

// TestAttachmentsDecide: on its own node, an address belongs to the pod that is attached with it, and to no pod that
// was detached, whatever the statuses say.
func TestAttachmentsDecide(t *testing.T) {
	const (
		a, b    = "pods app=old in namespace x", "pods app=new in namespace x"
		address = "10.0.0.7"
	)
	oldPod, newPodID := model.PodID{Namespace: "x", Name: "old"}, model.PodID{Namespace: "x", Name: "new"}
	addresses := func(all ...string) (out []netip.Addr) {
		for _, a := range all {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	begin := func(t *testing.T, ranges ...string) *state {
		s := newState(t)
		s.SetNode(newNode("here", "192.0.2.1", ranges...))
		s.SetPod(newPod("x/target", "10.0.0.1"))
		s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: old}}}]}, {from: [{podSelector: {matchLabels: {app: new}}}]}]}`))
		s.SetAntrea(newEgress(t, "e", "{appliedTo: {podSelector: {matchLabels: {app: old}}}, egressIP: 203.0.113.1, node: here}"))
		return s
	}
	check := func(s *state, what, want string) {
		t.Helper()
		s.flush()
		equal(s, what, groups(s), want)
		for _, e := range s.model.Egresses {
			for _, pod := range e.Pods {
				if !strings.Contains(want, a+" has "+pod.String()) {
					t.Errorf("%s: the Egress has %v", what, pod)
				}
			}
		}
	}
	t.Run("detached, and its address given away", func(t *testing.T) {
		s := begin(t)
		s.SetLocalAddresses(oldPod, addresses(address))
		old := newPod("x/old app=old", address)
		s.SetPod(old)
		check(s, "attached", a+" has 10.0.0.7")
		s.SetLocalAddresses(oldPod, nil)
		check(s, "detached", "")
		old = old.DeepCopy()
		now := metav1.Now()
		old.DeletionTimestamp = &now
		s.SetPod(old)
		check(s, "its status again", "")
		s.SetLocalAddresses(newPodID, addresses(address))
		s.SetPod(newPod("x/new app=new"))
		check(s, "the next pod", b+" has 10.0.0.7")
		s.DeletePod(oldPod)
		check(s, "the old one is gone", b+" has 10.0.0.7")
		s.SetPod(newPod("x/old app=old", "10.0.0.9"))
		check(s, "another pod of the name, never attached", b+" has 10.0.0.7\n"+a+" has 10.0.0.9")
	})
	t.Run("attached again", func(t *testing.T) {
		s := begin(t)
		s.SetPod(newPod("x/old app=old", address))
		s.SetLocalAddresses(oldPod, addresses(address))
		s.SetLocalAddresses(oldPod, nil)
		s.SetLocalAddresses(oldPod, addresses("10.0.0.8"))
		check(s, "a sandbox of its own", a+" has 10.0.0.8")
	})
	t.Run("another status than attachment", func(t *testing.T) {
		s := begin(t)
		s.SetLocalAddresses(oldPod, addresses("10.0.0.8"))
		s.SetPod(newPod("x/old app=old", address))
		s.SetLocalAddresses(newPodID, addresses(address))
		s.SetPod(newPod("x/new app=new", address))
		check(s, "attached", b+" has 10.0.0.7\n"+a+" has 10.0.0.8")
		s.SetLocalAddresses(oldPod, nil)
		check(s, "detached", b+" has 10.0.0.7")
	})
	// The agent restarted after the detachment, or another CNI plugin attached the pod: there is no record of it.
	t.Run("never attached", func(t *testing.T) {
		s := begin(t)
		s.SetPod(newPod("x/old app=old", address, "fd00::7"))
		check(s, "alone", a+" has 10.0.0.7\n"+a+" has fd00::7")
		s.SetLocalAddresses(newPodID, addresses(address))
		check(s, "the address is another pod's, whose object comes late", a+" has fd00::7")
		s.SetLocalAddresses(newPodID, nil)
		check(s, "and was detached", a+" has 10.0.0.7\n"+a+" has fd00::7")
	})
	// A node was replaced and its range given to this one, or a node lies.
	t.Run("pod of another node", func(t *testing.T) {
		s := begin(t, "10.0.0.0/24")
		s.SetPod(onNode(newPod("x/old app=old", address), "there"))
		check(s, "alone", a+" has 10.0.0.7")
		s.SetLocalAddresses(newPodID, addresses(address))
		s.SetPod(newPod("x/new app=new"))
		check(s, "a local pod has it", b+" has 10.0.0.7")
		s.SetPod(onNode(newPod("x/old app=old", address, "10.0.0.9"), "there"))
		check(s, "its status again", b+" has 10.0.0.7\n"+a+" has 10.0.0.9")
		s.SetNode(newNode("here", "192.0.2.1", "10.0.1.0/24"))
		s.SetNode(newNode("here", "192.0.2.1", "10.0.0.0/24"))
		s.SetLocalAddresses(newPodID, nil)
		check(s, "the local pod is detached", a+" has 10.0.0.7\n"+a+" has 10.0.0.9")
	})
}

// TestTwoPodsOfOneAddress: while both pods exist, the address is in the groups of both. A
// finished pod has no address, even if its status has one.
func TestTwoPodsOfOneAddress(t *testing.T) {
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
		if got := s.UnresolvedPorts()[model.ObjectRef{Kind: "NetworkPolicy", Namespace: "x", Name: "p"}]; !slices.Equal(got, want) {
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
			if got := s.UnresolvedPorts()[model.ObjectRef{Kind: "ClusterNetworkPolicy", Name: "p"}]; !slices.Equal(got, want) {
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
