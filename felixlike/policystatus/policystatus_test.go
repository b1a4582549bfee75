package policystatus_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/felixlike/egress/election"
	"github.com/felixlike/felixlike/felixlike/policystatus"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// TestConditions: two agents, on an API server inside the test.
func TestConditions(t *testing.T) {
	f, _ := newFake(t)
	testConditions(t, f, `{"domainNames":["*.example.com"]}`, `domainNames: "*.example.com": not supported`)
}

// TestRealAPIServer: the same on a real one, with the rights of deploy/. The
// CustomResourceDefinition there refuses domainNames.
func TestRealAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	admin := kubernetestest.StartAPIServer(t)
	for _, file := range []string{"namespace.yaml", "clusternetworkpolicies.yaml", "rbac.yaml"} {
		install(t, admin, "../../deploy/base/"+file)
	}
	f := newFixture(t, admin, func(node string) *rest.Config {
		c := rest.CopyConfig(admin)
		c.UserAgent = node
		c.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + system + ":felixlike"}
		return c
	})
	eventually.True(t, "the kind is served", func() bool {
		_, err := f.policies.List(t.Context(), metav1.ListOptions{})
		return err == nil
	}, func() string { return "not served" })
	testConditions(t, f, `{"namespaces":{"matchLabels":{"a":"*"}}}`, `namespaces.matchLabels: Invalid value: "*"`)
}

// testConditions tests two agents; peer is one that cannot be understood.
func testConditions(t *testing.T, f *fixture, peer, fault string) {
	ours := func(node string) *agent { return f.start(t, node, nil) }
	agents := map[string]*agent{"n1": ours("n1"), "n2": ours("n2")}

	f.create(t, "good", 1, deny)
	f.create(t, "refused", 2, `"egress":[{"action":"Accept","to":[{"namespaces":{}}]},{"action":"Deny","to":[`+peer+`]}]`)
	f.create(t, "second", 1, deny)
	began := f.until(t, "good", "True", "Accepted", "all rules are in force as written")
	f.until(t, "refused", "False", "NotUnderstood", "spec.egress[1].to[0]."+fault)
	f.until(t, "refused", "False", "NotUnderstood", "; the rule denies everything")
	f.until(t, "second", "True", "EqualPriority", "1 is also the priority of good in tier Admin; for pods that are subjects of both, good is evaluated first, because of its name")

	// One of them writes.
	writer := f.holder(t)
	other := map[string]string{"n1": "n2", "n2": "n1"}[writer]
	const writes = "this node writes the status"
	if agents[writer].logs.count(writes) != 1 || agents[other].logs.count(writes) != 0 {
		t.Errorf("%s holds the lease; %v, %v", writer, agents["n1"].logs.lines, agents["n2"].logs.lines)
	}

	// A correct condition is not written again, and a change of the spec keeps the time.
	f.update(t, "second", 3, deny)
	f.until(t, "second", "True", "Accepted", "")
	f.update(t, "good", 4, deny)
	if after := f.until(t, "good", "True", "Accepted", ""); !after.LastTransitionTime.Equal(&began.LastTransitionTime) {
		t.Errorf("the condition began at %s, now at %s", began.LastTransitionTime, after.LastTransitionTime)
	}
	before := f.versions(t)
	f.update(t, "second", 5, deny) // the writer has looked at all when it has written this
	f.until(t, "second", "True", "Accepted", "")
	after := f.versions(t)
	delete(before, "second")
	delete(after, "second")
	if !reflect.DeepEqual(before, after) {
		t.Errorf("written without need: %v, then %v", before, after)
	}

	// Conditions of others stay.
	f.foreign(t, "good")
	f.update(t, "good", 4, `"egress":[{"action":"Pass","to":[`+peer+`]}]`)
	f.until(t, "good", "False", "NotUnderstood", "; the rule denies everything")
	if all, _ := f.conditions(t, "good"); all["example.com/Seen"].Reason != "Test" {
		t.Errorf("conditions: %+v", all)
	}

	// A policy that is deleted and comes again.
	if err := f.policies.Delete(t.Context(), "refused", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.create(t, "refused", 2, deny)
	f.until(t, "refused", "True", "Accepted", "")

	// The writer ends, and the other one takes over.
	agents[writer].stop()
	f.update(t, "refused", 2, `"ingress":[{"action":"Accept","from":[{"namespaces":{"matchLabels":{"a":"!"}}}]}]`)
	f.until(t, "refused", "False", "NotUnderstood", "the rule matches nothing")
	if got := f.holder(t); got != other {
		t.Errorf("the lease is held by %q, wanted %s", got, other)
	}
	for node, a := range agents {
		if n := a.logs.count("level=WARN"); n > 0 {
			t.Errorf("%s: %v", node, a.logs.lines)
		}
	}
}

// TestWriterDies: an agent that is cut off does not give the Lease up. The other one
// waits until it has expired.
func TestWriterDies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	f, _ := newFake(t)
	cut := &cutTransport{}
	f.create(t, "p", 1, deny)
	dead := f.start(t, "n1", func(o *policystatus.Options) {
		config := f.agent("n1")
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { cut.next = next; return cut })
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		o.Client = client
	})
	f.until(t, "p", "True", "Accepted", "")
	if f.holder(t) != "n1" {
		t.Fatalf("the lease is held by %q", f.holder(t))
	}
	f.start(t, "n2", nil)
	cut.off()
	f.update(t, "p", 2, `"ingress":[]`)
	f.until(t, "p", "True", "Accepted", "")
	if f.holder(t) != "n2" {
		t.Errorf("the lease is held by %q", f.holder(t))
	}
	eventually.True(t, "the old one stops", func() bool { return dead.logs.count("has lost the Lease") == 1 }, func() string { return fmt.Sprint(dead.logs.lines) })
	if n := dead.logs.count("cannot elect the writer"); n != 1 {
		t.Errorf("said %d times: %v", n, dead.logs.lines)
	}
}

// cutTransport is a network that can be cut.
type cutTransport struct {
	mu   sync.Mutex
	cut  bool
	next http.RoundTripper
}

func (c *cutTransport) off() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
}

func (c *cutTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if cut {
		return nil, fmt.Errorf("the network is cut")
	}
	return c.next.RoundTrip(r)
}

// TestRefusals: without a right, and while the API server is away, it says so once, and
// goes on.
func TestRefusals(t *testing.T) {
	for _, c := range []struct{ resource, said string }{
		{"leases", "cannot elect the writer of policy status"},
		{status, "cannot write the status of ClusterNetworkPolicies"},
		{"clusternetworkpolicies", "cannot read ClusterNetworkPolicies to write their status"},
	} {
		for _, code := range []int{http.StatusForbidden, http.StatusServiceUnavailable} {
			t.Run(fmt.Sprint(c.resource, " ", code), func(t *testing.T) {
				t.Parallel()
				f, s := newFake(t)
				f.create(t, "p", 1, deny)
				s.Refuse(code, c.resource)
				a := f.start(t, "n1", nil)
				eventually.True(t, "refused three times", func() bool { return s.Refusals(c.resource) >= 3 }, func() string { return fmt.Sprint(a.logs.lines) })
				if n := a.logs.count(c.said); n != 1 {
					t.Errorf("said %d times: %v", n, a.logs.lines)
				}
				s.Refuse(0, c.resource)
				f.until(t, "p", "True", "Accepted", "")
			})
		}
	}
}

// TestStaged: a staged policy is accepted, and its condition does not say that it is in force.
func TestStaged(t *testing.T) {
	f, _ := newFake(t)
	f.create(t, "p", 1, deny)
	f.start(t, "n1", nil)
	f.until(t, "p", "True", "Accepted", "all rules are in force as written")
	patch := []byte(`{"metadata":{"annotations":{"` + model.EnforceAnnotation + `":"no"}}}`)
	if _, err := f.policies.Patch(t.Context(), "p", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.until(t, "p", "True", "Staged", "no rule is enforced")
}

// TestVariant: with a setting with which no policy is in force, no policy is accepted.
func TestVariant(t *testing.T) {
	f, _ := newFake(t)
	f.create(t, "p", 1, deny)
	f.start(t, "n1", func(o *policystatus.Options) { o.Variant = "some: setting" })
	f.until(t, "p", "False", "NotInForce", "it is not in force with some: setting")
}

// TestFight: a condition that another program removes again and again is written no faster than
// Timing.Again.
func TestFight(t *testing.T) {
	f, _ := newFake(t)
	f.create(t, "p", 1, deny)
	f.start(t, "n1", nil) // its Again is an hour
	f.until(t, "p", "True", "Accepted", "")
	o, err := f.policies.Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	delete(o.Object, "status")
	if _, err := f.policies.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The writer has looked at all policies when it has written this one.
	f.create(t, "q", 2, deny)
	f.until(t, "q", "True", "Accepted", "")
	if all, _ := f.conditions(t, "p"); len(all) > 0 {
		t.Errorf("written again: %v", all)
	}
	// Another condition is written at once.
	f.update(t, "p", 3, deny)
	f.until(t, "p", "True", "Accepted", "")
}

// TestNotNeeded: without policies no agent asks for the Lease, and the writer releases it.
func TestNotNeeded(t *testing.T) {
	f, s := newFake(t)
	var mu sync.Mutex
	looks, needed := 0, false
	set := func(n bool) {
		mu.Lock()
		defer mu.Unlock()
		looks, needed = 0, n
	}
	f.start(t, "n1", func(o *policystatus.Options) {
		o.Needed = func() bool {
			mu.Lock()
			defer mu.Unlock()
			looks++
			return needed
		}
	})
	looked := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return looks > 3
	}
	eventually.True(t, "it looks", looked)
	for _, r := range s.Requests() {
		if r.Client == "n1" {
			t.Errorf("asked: %+v", r)
		}
	}
	f.create(t, "p", 1, deny)
	set(true)
	f.until(t, "p", "True", "Accepted", "")
	set(false)
	eventually.True(t, "the lease is free", func() bool { return f.holder(t) == "" }, func() string { return f.holder(t) })
}

// TestManyPolicies: 200 policies are written once each, no faster than the limit, and
// then nothing more.
func TestManyPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	f, _ := newFake(t)
	const count, rate, burst = 200, 100, 10
	for i := range count {
		f.create(t, fmt.Sprintf("p%03d", i), i, deny)
	}
	began := time.Now()
	f.start(t, "n1", func(o *policystatus.Options) { o.Timing.Rate, o.Timing.Burst = rate, burst })
	f.until(t, fmt.Sprintf("p%03d", count-1), "True", "Accepted", "")
	if took, least := time.Since(began), (count-burst)*time.Second/rate; took < least {
		t.Errorf("%d writes took %s, wanted %s at least", count, took, least)
	}
	before := f.versions(t)
	f.update(t, "p000", 0, `"egress":[]`)
	f.until(t, "p000", "True", "Accepted", "")
	after := f.versions(t)
	delete(before, "p000")
	delete(after, "p000")
	if !reflect.DeepEqual(before, after) {
		t.Error("written without need")
	}
}

// TestRights: the agent uses exactly the rights that Rights and LeaseRights list, and the
// manifests in deploy/ grant these.
func TestRights(t *testing.T) {
	f, s := newFake(t)
	f.create(t, "p", 1, deny)
	a := f.start(t, "n1", nil)
	f.until(t, "p", "True", "Accepted", "")
	a.stop() // it updates the Lease
	asked := map[string]bool{}
	for _, r := range s.Requests() {
		if r.Client == "n1" {
			asked[r.Verb+" "+r.Group+"/"+r.Resource] = true
		}
	}
	const kind = "policy.networking.k8s.io/clusternetworkpolicies"
	delete(asked, "list "+kind)
	delete(asked, "watch "+kind)
	granted := rightsOf(append(policystatus.Rights(), policystatus.LeaseRights()...))
	if !reflect.DeepEqual(asked, granted) {
		t.Errorf("asked for %v, granted are %v", asked, granted)
	}
	for _, o := range objectsOf(t, "../../deploy/base/rbac.yaml") {
		data, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var role rbacv1.Role
		if err := json.Unmarshal(data, &role); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "Role" && o.GetName() == "felixlike" && !reflect.DeepEqual(role.Rules, append(policystatus.LeaseRights(), election.Rights()...)) {
			t.Errorf("the role grants %v", role.Rules)
		}
	}
}

func rightsOf(rules []rbacv1.PolicyRule) map[string]bool {
	all := map[string]bool{}
	for _, r := range rules {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				all[verb+" "+r.APIGroups[0]+"/"+resource] = true
			}
		}
	}
	return all
}
