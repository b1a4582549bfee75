package policy_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/test/policytest"
)

// narrow is a state in which all groups of one kind have one identifier.
func narrow(t *testing.T) *state {
	s := newState(t)
	s.Engine = policy.New("here").Narrowed(0)
	s.SetNamespace(newNamespace("x"))
	for i, words := range []string{"x/a app=a", "x/b app=b", "x/c app=c"} {
		s.SetPod(newPod(words, "10.0.0."+string(rune('1'+i))))
	}
	return s
}

// from is a policy that allows the pods with one label to reach all pods.
func from(name, app string) func(*policy.Engine) {
	p := peerPolicy("x", name, nil, map[string]string{"app": app})
	return func(e *policy.Engine) { e.SetNetworkPolicy(p) }
}

func collided(e *policy.Engine) string {
	var names []string
	for _, p := range e.Collisions() {
		names = append(names, p.Object.String())
	}
	return strings.Join(names, " ")
}

// TestCollidingParts: an object whose parts collide with one group is named once.
func TestCollidingParts(t *testing.T) {
	s := narrow(t)
	from("first", "a")(s.Engine)
	s.flush()
	drop := func(pods string) antrea.Rule {
		selects := func(app string) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		}
		return antrea.Rule{Action: antrea.Drop, From: []antrea.Peer{{PodSelector: selects("b")}}, AppliedTo: []antrea.AppliedTo{{PodSelector: selects(pods)}}}
	}
	s.SetAntrea(&antrea.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: antrea.PolicySpec{Priority: 1, Ingress: []antrea.Rule{drop("a"), drop("c")}}})
	s.flush()
	if got := collided(s.Engine); got != "clusternetworkpolicy.crd.antrea.io/p" {
		t.Errorf("closed: %q", got)
	}
}

// TestCollidingGroups: a policy is closed and reported if its group has the identifier of
// an earlier group. The earlier policy does not change. When its group is gone, the other
// policy is in force.
func TestCollidingGroups(t *testing.T) {
	s := narrow(t)
	from("second", "b")(s.Engine)
	s.flush()
	from("first", "a")(s.Engine)
	if got := s.flush(); strings.Contains(got, "group") || strings.Contains(got, "second 1") || !strings.Contains(got, "policy networkpolicy/x/first 0 ingress") {
		t.Errorf("the later policy comes to\n%s", got)
	}
	if got := collided(s.Engine); got != "networkpolicy/x/first" {
		t.Errorf("closed: %q", got)
	}
	if reason := s.Collisions()[0].Reason; !strings.Contains(reason, "app=a") || !strings.Contains(reason, "app=b") {
		t.Errorf("reason %q", reason)
	}
	from("third", "b")(s.Engine)
	if got := s.flush(); !strings.Contains(got, "policy networkpolicy/x/third 1 ingress") {
		t.Errorf("a policy with the same group as the earlier one comes to\n%s", got)
	}
	s.DeleteNetworkPolicy("x", "second")
	s.flush()
	if got := collided(s.Engine); got != "networkpolicy/x/first" {
		t.Errorf("closed while another policy has the group: %q", got)
	}
	s.DeleteNetworkPolicy("x", "third")
	if got := s.flush(); !strings.Contains(got, "policy networkpolicy/x/first 1 ingress") || !strings.Contains(got, "+[10.0.0.1]") {
		t.Errorf("after the earlier policies are gone:\n%s", got)
	}
	if got := collided(s.Engine); got != "" {
		t.Errorf("closed: %q", got)
	}
	// Its own group makes room for another one with that identifier.
	from("first", "c")(s.Engine)
	s.flush()
	if got := collided(s.Engine); got != "" || !strings.Contains(s.model.String(), "10.0.0.3") {
		t.Errorf("with another selector: closed %q\n%s", got, s.model)
	}
}

// TestCollidingGroupsAtOnce: after a restart, the result does not depend on the order of
// the policies.
func TestCollidingGroupsAtOnce(t *testing.T) {
	var models []string
	for _, names := range [][]string{{"first", "second", "third"}, {"third", "second", "first"}} {
		s := narrow(t)
		for _, name := range names {
			from(name, name)(s.Engine)
		}
		s.flush()
		if got := collided(s.Engine); got != "networkpolicy/x/second networkpolicy/x/third" {
			t.Errorf("closed: %q", got)
		}
		models = append(models, s.model.String())
	}
	if models[0] != models[1] {
		t.Errorf("one order ends in\n%s\nanother in\n%s", models[0], models[1])
	}
}

// TestCollidingGroupsOfOnePolicy: no selector takes the place of another one.
func TestCollidingGroupsOfOnePolicy(t *testing.T) {
	s := narrow(t)
	p := networkPolicy(t, "{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}, {podSelector: {matchLabels: {app: b}}}]}]}")
	problems := s.SetNetworkPolicy(p)
	if len(problems) != 1 || !strings.Contains(problems[0].Reason, "one identifier") {
		t.Errorf("problems: %v", problems)
	}
	if got := s.flush(); !strings.Contains(got, "policy networkpolicy/x/p 0 ingress") {
		t.Errorf("the policy comes to\n%s", got)
	}
}

// TestCollisionsOpenNothing judges packets of random clusters by engines with few
// identifiers of groups, and compares with the oracle: a collision allows no packet.
func TestCollisionsOpenNothing(t *testing.T) {
	found := 0
	seeded.Check(t, func(t *rapid.T) {
		c := policytest.TieredCluster(t)
		models := map[string]*policytest.Model{}
		exact := true
		for _, n := range c.Nodes {
			m, e := policytest.NewModel(), policy.New(n.Name).Narrowed(rapid.IntRange(0, 1).Draw(t, "hash"))
			problems := 0
			all := sets(c)
			all = append(all, func(e *policy.Engine) {
				for _, p := range c.Policies {
					problems += len(e.SetNetworkPolicy(p))
				}
				for _, p := range c.ClusterPolicies {
					problems += len(e.SetClusterNetworkPolicy(p))
				}
			})
			run(t, e, m, all)
			exact = exact && problems == 0 && len(e.Collisions()) == 0
			found += len(e.Collisions())
			models[n.Name] = m
		}
		for _, p := range policytest.Packets(t, c) {
			v := c.Evaluate(p)
			egress, ingress := policytest.Judge(models, c, p)
			if egress && !v.Egress.Allowed || ingress && !v.Ingress.Allowed {
				t.Fatalf("%s: engine egress %v ingress %v, oracle %+v", p, egress, ingress, v)
			}
			if exact && (egress != v.Egress.Allowed || ingress != v.Ingress.Allowed) {
				t.Fatalf("%s: engine egress %v ingress %v, oracle %+v, and no collision", p, egress, ingress, v)
			}
		}
	})
	if found == 0 {
		t.Error("no collision was found")
	}
}

// TestCollisionsLeaveNothing: after all objects are deleted, the engine has no collision.
func TestCollisionsLeaveNothing(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		c := policytest.TieredCluster(t)
		e, m := policy.New("node1").Narrowed(0), policytest.NewModel()
		run(t, e, m, sets(c))
		gone := change(c, &oracle.Cluster{})
		for _, n := range c.Nodes {
			gone = append(gone, func(e *policy.Engine) { e.DeleteNode(n.Name) })
		}
		run(t, e, m, gone)
		if left := m.String() + e.Left() + collided(e); left != "" {
			t.Fatalf("left: %s", left)
		}
	})
}
