package cluster

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestObjectsJudgeAlike: the served objects have all fields that affect policy.
func TestObjectsJudgeAlike(t *testing.T) {
	steps, err := truthtable.ReadFile("../../test/truthtable/testdata/sample.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		full := step.Objects(model.IPv4)
		served := newObjects()
		for _, n := range full.Nodes {
			served.onEvent(datastore.NodeSet{Node: n})
		}
		for _, n := range full.Namespaces {
			served.onEvent(datastore.NamespaceSet{Namespace: n})
		}
		for _, p := range full.Pods {
			served.onEvent(datastore.PodSet{Pod: p})
		}
		for _, p := range full.Policies {
			served.onEvent(datastore.NetworkPolicySet{Policy: p})
		}
		for _, p := range full.ClusterPolicies {
			served.onEvent(datastore.ClusterNetworkPolicySet{Policy: p})
		}
		all := served.all()
		a := oracle.Cluster{Nodes: full.Nodes, Namespaces: full.Namespaces, Pods: full.Pods, Policies: full.Policies, ClusterPolicies: full.ClusterPolicies}
		b := oracle.Cluster{Nodes: all.Nodes, Namespaces: all.Namespaces, Pods: all.Pods, Policies: all.Policies, ClusterPolicies: all.ClusterPolicies}
		for _, probe := range step.Probes {
			p := oracle.Packet{Port: probe.Port}
			p.Source, _ = step.Address(probe.From, model.IPv4)
			p.Destination, _ = step.Address(probe.To, model.IPv4)
			p.Protocol, _ = model.ParseProtocol(probe.Protocol)
			if want, got := a.Evaluate(p).Allowed, b.Evaluate(p).Allowed; want != got {
				t.Errorf("%s: %s: %v by what is served, %v by the objects", step.String(), p, got, want)
			}
		}
		again := served.all()
		one, _ := json.Marshal(all)
		two, _ := json.Marshal(again)
		if string(one) != string(two) {
			t.Errorf("%s: two answers differ", step.String())
		}
	}
}

// TestClosedPolicyIsServedClosed: for a policy that cannot be understood, the oracle and the
// agent give the same verdicts.
func TestClosedPolicyIsServedClosed(t *testing.T) {
	o := newObjects()
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	o.onEvent(datastore.NetworkPolicyClosed{Namespace: "x", Name: "p", PodSelector: selector})
	got := o.all().Policies
	if len(got) != 1 || got[0].Spec.PodSelector.MatchLabels["app"] != "a" || len(got[0].Spec.PolicyTypes) != 2 || len(got[0].Spec.Ingress) != 0 {
		t.Fatalf("%+v", got)
	}
	o.onEvent(datastore.NetworkPolicySet{Policy: &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}}})
	if got := o.all().Policies; len(got[0].Spec.PolicyTypes) != 0 {
		t.Errorf("the readable policy does not replace it: %+v", got[0])
	}
	o.onEvent(datastore.NetworkPolicyDeleted{Namespace: "x", Name: "p"})
	if got := o.all().Policies; len(got) != 0 {
		t.Errorf("deleted, and still served: %+v", got)
	}
}

// TestPodsShareWhatTheyHaveInCommon: pods of one workload are returned unchanged, and
// nothing remains after their deletion.
func TestPodsShareWhatTheyHaveInCommon(t *testing.T) {
	o := newObjects()
	pod := func(name, app string, addresses ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{NodeName: "node-of-" + name}}
		for _, a := range addresses {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
		}
		return p
	}
	set := func(p *corev1.Pod) { o.onEvent(datastore.PodSet{Pod: p}) }
	set(pod("a", "web", "10.0.0.1", "fd00::1"))
	set(pod("b", "web"))
	if len(o.templates) != 1 {
		t.Errorf("%d templates of two alike pods", len(o.templates))
	}
	set(pod("b", "db", "10.0.0.2"))
	set(pod("b", "db", "10.0.0.3"))
	want := []*corev1.Pod{pod("a", "web", "10.0.0.1", "fd00::1"), pod("b", "db", "10.0.0.3")}
	if diff := cmp.Diff(want, o.all().Pods); diff != "" {
		t.Errorf("served:\n%s", diff)
	}
	for _, name := range []string{"a", "b", "b"} {
		o.onEvent(datastore.PodDeleted{ID: model.PodID{Namespace: "x", Name: name}})
	}
	if len(o.templates) != 0 || len(o.pods) != 0 {
		t.Errorf("%d templates and %d pods are left", len(o.templates), len(o.pods))
	}
}

// TestServedObjectsSayThatNamespacesAreIsolated: tools that judge packets need the setting beside the objects, and the engine has it.
func TestServedObjectsSayThatNamespacesAreIsolated(t *testing.T) {
	for _, on := range []bool{false, true} {
		c := New(Config{Node: "node1", Isolation: on}, func() []string { return nil })
		if got := c.Served().Antrea.Isolation; got != on || c.engine.AwaitsNamespace("x") != on {
			t.Errorf("isolation %t: served %t, engine waits %t", on, got, c.engine.AwaitsNamespace("x"))
		}
	}
}
