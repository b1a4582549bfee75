package policy_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
)

// step is one Set or Delete.
type step func(*policy.Engine)

// sets returns the steps that set every object of the cluster.
func sets(c *oracle.Cluster) []step {
	steps := []step{func(e *policy.Engine) { e.SetIsolation(c.Antrea.Isolation) }}
	for _, o := range c.Nodes {
		steps = append(steps, func(e *policy.Engine) { e.SetNode(o) })
	}
	for _, o := range c.Namespaces {
		steps = append(steps, func(e *policy.Engine) { e.SetNamespace(o) })
	}
	for _, o := range c.Pods {
		steps = append(steps, func(e *policy.Engine) { e.SetPod(o) })
	}
	for _, o := range c.Policies {
		steps = append(steps, func(e *policy.Engine) { e.SetNetworkPolicy(o) })
	}
	for _, o := range c.ClusterPolicies {
		steps = append(steps, func(e *policy.Engine) { e.SetClusterNetworkPolicy(o) })
	}
	for _, o := range c.Antrea.All() {
		steps = append(steps, func(e *policy.Engine) { e.SetAntrea(o) })
	}
	return steps
}

// change returns the steps from one cluster to another.
func change(from, to *oracle.Cluster) []step {
	steps := sets(to)
	for _, o := range from.Namespaces {
		if !slices.ContainsFunc(to.Namespaces, func(n *corev1.Namespace) bool { return n.Name == o.Name }) {
			steps = append(steps, func(e *policy.Engine) { e.DeleteNamespace(o.Name) })
		}
	}
	for _, o := range from.Pods {
		if !slices.ContainsFunc(to.Pods, func(p *corev1.Pod) bool { return p.Namespace == o.Namespace && p.Name == o.Name }) {
			steps = append(steps, func(e *policy.Engine) { e.DeletePod(model.PodID{Namespace: o.Namespace, Name: o.Name}) })
		}
	}
	kept := map[string]bool{}
	for _, o := range to.Policies {
		kept[o.Namespace+"/"+o.Name] = true
	}
	for _, o := range from.Policies {
		if !kept[o.Namespace+"/"+o.Name] {
			steps = append(steps, func(e *policy.Engine) { e.DeleteNetworkPolicy(o.Namespace, o.Name) })
		}
	}
	for _, o := range from.ClusterPolicies {
		if !slices.ContainsFunc(to.ClusterPolicies, func(p *v1alpha2.ClusterNetworkPolicy) bool { return p.Name == o.Name }) {
			steps = append(steps, func(e *policy.Engine) { e.DeleteClusterNetworkPolicy(o.Name) })
		}
	}
	objects := map[antrea.ID]bool{}
	for _, o := range to.Antrea.All() {
		objects[o.ID()] = true
	}
	for _, o := range from.Antrea.All() {
		if !objects[o.ID()] {
			steps = append(steps, func(e *policy.Engine) { e.DeleteAntrea(o.ID()) })
		}
	}
	return steps
}

// run runs steps in a random order with flushes anywhere, and a last one.
func run(t *rapid.T, e *policy.Engine, m *policytest.Model, steps []step) {
	flush := func() {
		if err := m.Apply(e.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if len(steps) > 0 {
		steps = rapid.Permutation(steps).Draw(t, "order")
	}
	for i, s := range steps {
		s(e)
		if rapid.IntRange(0, 3).Draw(t, fmt.Sprintf("flush after %d", i)) == 3 {
			flush()
		}
	}
	flush()
	if again := e.Flush(); len(again) > 0 {
		t.Fatalf("a second flush returns %v", again)
	}
}

// TestEngineAgreesWithOracle judges packets by the models of both nodes and by
// the oracle.
func TestEngineAgreesWithOracle(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		c := policytest.AntreaCluster(t)
		models := map[string]*policytest.Model{}
		for _, n := range c.Nodes {
			models[n.Name] = policytest.NewModel()
			run(t, policy.New(n.Name), models[n.Name], sets(c))
		}
		for _, p := range policytest.Packets(t, c) {
			v := c.Evaluate(p)
			egress, ingress := policytest.Judge(models, c, p)
			if egress != v.Egress.Allowed || ingress != v.Ingress.Allowed {
				t.Fatalf("%s: engine egress %v ingress %v, oracle %+v", p, egress, ingress, v)
			}
		}
	})
}

// TestAnyOrderEndsInOneModel turns one cluster into another in any order with
// flushes anywhere, and compares with an engine that only ever saw the second
// and flushed once.
func TestAnyOrderEndsInOneModel(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		before, after := policytest.AntreaCluster(t), policytest.AntreaCluster(t)
		e, m := policy.New("node1"), policytest.NewModel()
		run(t, e, m, sets(before))
		// A policy whose group cannot be understood keeps the pods that it had, as long as the group is there.
		var groups []step
		for _, o := range before.Antrea.All() {
			if k := o.ID().Kind; k == antrea.KindGroup || k == antrea.KindClusterGroup {
				groups = append(groups, func(e *policy.Engine) { e.DeleteAntrea(o.ID()) })
			}
		}
		run(t, e, m, groups)
		run(t, e, m, change(before, after))
		fresh, want := policy.New("node1"), policytest.NewModel()
		for _, s := range sets(after) {
			s(fresh)
		}
		if err := want.Apply(fresh.Flush()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), m.String()); diff != "" {
			t.Fatalf("incremental (+) differs from fresh (-):\n%s", diff)
		}
		if diff := cmp.Diff(fresh.HostNetworkTargets(true), e.HostNetworkTargets(true)); diff != "" {
			t.Fatalf("policies with pods of their hosts, incremental (+) and fresh (-):\n%s", diff)
		}
		if diff := cmp.Diff(fresh.HostNetworkTargets(false), e.HostNetworkTargets(false)); diff != "" {
			t.Fatalf("the first pods of their hosts, incremental (+) and fresh (-):\n%s", diff)
		}
		if diff := cmp.Diff(fresh.UnresolvedPorts(), e.UnresolvedPorts()); diff != "" {
			t.Fatalf("unresolved ports, incremental (+) and fresh (-):\n%s", diff)
		}
		late := policytest.NewModel()
		if err := late.Apply(e.Snapshot()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m.String(), late.String()); diff != "" {
			t.Fatalf("snapshot (+) differs from what the flushes came to (-):\n%s", diff)
		}
		for _, s := range sets(after) {
			s(e)
		}
		if again := e.Flush(); len(again) > 0 {
			t.Fatalf("the same objects again come to %v", again)
		}
	})
}

// TestDeletingEverythingLeavesNothing checks that the engine forgets.
func TestDeletingEverythingLeavesNothing(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		c := policytest.AntreaCluster(t)
		e, m := policy.New("node1"), policytest.NewModel()
		run(t, e, m, sets(c))
		gone := change(c, &oracle.Cluster{})
		for _, n := range c.Nodes {
			gone = append(gone, func(e *policy.Engine) { e.DeleteNode(n.Name) })
		}
		run(t, e, m, gone)
		if left := m.String(); left != "" {
			t.Fatalf("left in the model:\n%s", left)
		}
		if left := e.Left(); left != "" {
			t.Fatalf("left in the engine: %s", left)
		}
	})
}
