package kubernetestest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (s *suite) labels(t *testing.T) {
	p := must(s.CoreV1().Pods(s.namespace).Get(s.ctx, "a", metav1.GetOptions{}))(t)
	p.Labels["tier"] = "front"
	p.ResourceVersion = ""
	must(s.CoreV1().Pods(s.namespace).Update(s.ctx, p, metav1.UpdateOptions{}))(t)
	n := must(s.CoreV1().Namespaces().Get(s.ctx, s.namespace, metav1.GetOptions{}))(t)
	n.Labels["suite"] = "2"
	n.ResourceVersion = ""
	must(s.CoreV1().Namespaces().Update(s.ctx, n, metav1.UpdateOptions{}))(t)
	seen := s.view.Sync(t)
	if got := seen.Pods[s.id("a")].Labels["tier"]; got != "front" {
		t.Errorf("label of the pod: %q", got)
	}
	if got := seen.Namespaces[s.namespace].Labels["suite"]; got != "2" {
		t.Errorf("label of the namespace: %q", got)
	}
}

// replaced: a pod that comes back under its name is another one.
func (s *suite) replaced(t *testing.T) {
	before := s.view.Sync(t).Pods[s.id("b")]
	s.deletePod(t, "b")
	next := s.pod("b")
	next.Labels = map[string]string{"app": "other"}
	s.create(t, next)
	after := s.view.Sync(t).Pods[s.id("b")]
	if after == nil || after.UID == before.UID || after.Labels["app"] != "other" || len(after.Status.PodIPs) > 0 {
		t.Errorf("after: %+v", after)
	}
}

func (s *suite) deletePod(t *testing.T, name string) {
	t.Helper()
	now := int64(0)
	if err := s.CoreV1().Pods(s.namespace).Delete(s.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
}

// leaving: a pod that is being deleted counts until it is gone.
func (s *suite) leaving(t *testing.T) {
	p := s.pod("leaving")
	p.Finalizers = []string{"felixlike.io/suite"}
	s.create(t, p)
	s.setIP(t, "leaving", "10.251.7.9")
	s.deletePod(t, "leaving")
	if seen := s.view.Sync(t).Pods[s.id("leaving")]; seen == nil || len(seen.Status.PodIPs) != 1 {
		t.Fatalf("while it is being deleted: %+v", seen)
	}
	p = must(s.CoreV1().Pods(s.namespace).Get(s.ctx, "leaving", metav1.GetOptions{}))(t)
	if p.DeletionTimestamp == nil {
		t.Fatal("it is not being deleted")
	}
	p.Finalizers = nil
	p.ResourceVersion = ""
	must(s.CoreV1().Pods(s.namespace).Update(s.ctx, p, metav1.UpdateOptions{}))(t)
	if seen := s.view.Sync(t).Pods[s.id("leaving")]; seen != nil {
		t.Errorf("after it was deleted: %+v", seen)
	}
}

// done: pods that will not run again are gone, with any address.
func (s *suite) done(t *testing.T) {
	for name, phase := range map[string]corev1.PodPhase{"succeeded": corev1.PodSucceeded, "failed": corev1.PodFailed} {
		s.create(t, s.pod(name))
		s.setIP(t, name, "10.251.7.20")
		if s.view.Sync(t).Pods[s.id(name)] == nil {
			t.Fatalf("%s: missing while it runs", name)
		}
		p := must(s.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{}))(t)
		p.Status.Phase = phase
		p.ResourceVersion = ""
		must(s.CoreV1().Pods(s.namespace).UpdateStatus(s.ctx, p, metav1.UpdateOptions{}))(t)
		if seen := s.view.Sync(t).Pods[s.id(name)]; seen != nil {
			t.Errorf("%s: %+v", name, seen)
		}
	}
	host := s.pod("host")
	host.Spec.HostNetwork = true
	host.Spec.Containers[1].Ports[0].HostPort = 8080
	s.create(t, host)
	s.setIP(t, "host", "192.0.2.77")
	if seen := s.view.Sync(t).Pods[s.id("host")]; seen == nil || !seen.Spec.HostNetwork || len(seen.Status.PodIPs) > 0 {
		t.Errorf("on the host's network: %+v", seen)
	}
}

func (s *suite) policies(t *testing.T) {
	policies := s.NetworkingV1().NetworkPolicies(s.namespace)
	p := must(policies.Get(s.ctx, "p", metav1.GetOptions{}))(t)
	p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24", Except: []string{"192.0.2.7/32"}}}}}}
	p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	p.ResourceVersion = ""
	must(policies.Update(s.ctx, p, metav1.UpdateOptions{}))(t)
	must(policies.Create(s.ctx, policy(s.namespace, "q"), metav1.CreateOptions{}))(t)
	seen := s.view.Sync(t)
	if got := seen.Policies[path(s.namespace, "p")]; got == nil || len(got.Spec.Egress) != 1 || len(got.Spec.PolicyTypes) != 2 {
		t.Errorf("changed: %+v", got)
	}
	if seen.Policies[path(s.namespace, "q")] == nil {
		t.Error("the new one is missing")
	}
	if err := policies.Delete(s.ctx, "q", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if seen := s.view.Sync(t); seen.Policies[path(s.namespace, "q")] != nil {
		t.Error("the deleted one is there")
	}
}

func (s *suite) nodes(t *testing.T) {
	name := s.node + "2"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: "10.251.8.0/24", PodCIDRs: []string{"10.251.8.0/24"}}}
	must(s.CoreV1().Nodes().Create(s.ctx, node, metav1.CreateOptions{}))(t)
	if n := s.view.Sync(t).Nodes[name]; n == nil || len(n.Spec.PodCIDRs) != 1 {
		t.Errorf("the new one: %+v", n)
	}
	if err := s.CoreV1().Nodes().Delete(s.ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := s.view.Sync(t).Nodes[name]; n != nil {
		t.Errorf("after it was deleted: %+v", n)
	}
}
