package policystatus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/policystatus"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

const (
	system   = "felixlike-system"
	status   = "clusternetworkpolicies/status"
	patience = 60 * time.Second
)

// timing is an agent's, in a hurry.
func timing() policystatus.Timing {
	return policystatus.Timing{
		Lease: 2 * time.Second, Poll: 100 * time.Millisecond, PerNode: time.Millisecond, Needed: 10 * time.Millisecond,
		Gather: time.Millisecond, Again: time.Hour, Retry: 10 * time.Millisecond, RetryMost: 50 * time.Millisecond, Rate: 1000, Burst: 1000,
	}
}

// logs collects the lines of a log.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

// count returns how many lines have a text.
func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// fixture is an API server and the agents of a test.
type fixture struct {
	admin *rest.Config
	// agent returns how an agent reaches it.
	agent    func(node string) *rest.Config
	policies dynamic.ResourceInterface
	leases   dynamic.ResourceInterface
}

func newFixture(t *testing.T, admin *rest.Config, agent func(string) *rest.Config) *fixture {
	t.Helper()
	client, err := dynamic.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{
		admin: admin, agent: agent, policies: kubernetestest.ClusterPolicies(t, admin),
		leases: client.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace(system),
	}
}

func newFake(t *testing.T) (*fixture, *kubernetestest.Server) {
	t.Helper()
	s := kubernetestest.NewServer(t)
	return newFixture(t, s.Config(kubernetestest.Admin), s.Config), s
}

// agent is a candidate that runs.
type agent struct {
	logs *logs
	stop func()
}

// start starts a candidate; change, if not nil, changes its options.
func (f *fixture) start(t *testing.T, node string, change func(*policystatus.Options)) *agent {
	t.Helper()
	client, err := dynamic.NewForConfig(f.agent(node))
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{logs: &logs{}}
	o := policystatus.Options{
		Client: client, Node: node, Namespace: system, Nodes: func() int { return 2 }, Needed: func() bool { return true },
		Log: slog.New(slog.NewTextHandler(a.logs, nil)), Timing: timing(),
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := policystatus.Run(ctx, o); err != nil {
			t.Error(err)
		}
	}()
	a.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(a.stop)
	return a
}

// create creates a policy of the admin tier with these rules.
func (f *fixture) create(t *testing.T, name string, priority int, rules string) {
	t.Helper()
	if _, err := f.policies.Create(t.Context(), policyOf(t, name, priority, rules), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

const deny = `"ingress":[{"action":"Deny","from":[{"namespaces":{}}]}]`

func policyOf(t *testing.T, name string, priority int, rules string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":%q},
		"spec":{"tier":"Admin","priority":%d,"subject":{"namespaces":{}},%s}}`, name, priority, rules)
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// update changes the spec of a policy.
func (f *fixture) update(t *testing.T, name string, priority int, rules string) {
	t.Helper()
	for {
		o, err := f.policies.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.Object["spec"] = policyOf(t, name, priority, rules).Object["spec"]
		_, err = f.policies.Update(t.Context(), o, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) { // its status was written meanwhile
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}

// conditions returns the conditions of a policy by type, and its generation.
func (f *fixture) conditions(t *testing.T, name string) (map[string]metav1.Condition, int64) {
	t.Helper()
	o, err := f.policies.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(o.Object["status"])
	if err != nil {
		t.Fatal(err)
	}
	var s struct{ Conditions []metav1.Condition }
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	all := map[string]metav1.Condition{}
	for _, c := range s.Conditions {
		all[c.Type] = c
	}
	return all, o.GetGeneration()
}

// until waits until our condition of a policy is as wanted and of its generation.
func (f *fixture) until(t *testing.T, name string, wanted metav1.ConditionStatus, reason, message string) metav1.Condition {
	t.Helper()
	var last metav1.Condition
	wait(t, fmt.Sprintf("%s is %s, %s", name, wanted, reason), func() bool {
		all, generation := f.conditions(t, name)
		last = all[policystatus.ConditionAccepted]
		return last.Status == wanted && last.Reason == reason && last.ObservedGeneration == generation && strings.Contains(last.Message, message)
	}, func() string { return fmt.Sprintf("%+v", last) })
	return last
}

// wait waits until something is so.
func wait(t *testing.T, what string, so func() bool, state func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s; it is %s", what, state())
		}
	}
}

// holder returns the holder of the Lease.
func (f *fixture) holder(t *testing.T) string {
	t.Helper()
	o, err := f.leases.Get(t.Context(), policystatus.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	holder, _, _ := unstructured.NestedString(o.Object, "spec", "holderIdentity")
	return holder
}

// TestConditions: two agents, on an API server inside the test.
func TestConditions(t *testing.T) {
	f, _ := newFake(t)
	testConditions(t, f, `{"domainNames":["*.example.com"]}`, `domainNames: "*.example.com": not supported`)
}

// TestRealAPIServer: the same on a real one, with the rights of deploy/. The
// CustomResourceDefinition there refuses domainNames.
func TestRealAPIServer(t *testing.T) {
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
	wait(t, "the kind is served", func() bool {
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

// versions returns the versions of all policies.
func (f *fixture) versions(t *testing.T) map[string]string {
	t.Helper()
	list, err := f.policies.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, o := range list.Items {
		all[o.GetName()] = o.GetResourceVersion()
	}
	return all
}

// foreign writes a condition as another program.
func (f *fixture) foreign(t *testing.T, name string) {
	t.Helper()
	patch := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": map[string]any{"name": name},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": "example.com/Seen", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}}},
	}}
	if _, err := f.policies.ApplyStatus(t.Context(), name, patch, metav1.ApplyOptions{FieldManager: "test"}); err != nil {
		t.Fatal(err)
	}
}

// install creates the objects of a file.
func install(t *testing.T, admin *rest.Config, file string) {
	t.Helper()
	client, err := dynamic.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objectsOf(t, file) {
		gvk := o.GroupVersionKind()
		resource := strings.ToLower(gvk.Kind) + "s"
		at := client.Resource(gvk.GroupVersion().WithResource(resource))
		var to dynamic.ResourceInterface = at
		switch gvk.Kind {
		case "ServiceAccount", "Role", "RoleBinding":
			to = at.Namespace(system)
		case "Namespace":
			o.SetName(system)
		}
		if _, err := to.Create(t.Context(), &o, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s %s: %v", gvk.Kind, o.GetName(), err)
		}
	}
}

func objectsOf(t *testing.T, file string) []unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []unstructured.Unstructured
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		o := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// TestWriterDies: an agent that is cut off does not give the Lease up. The other one
// waits until it has expired.
func TestWriterDies(t *testing.T) {
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
	wait(t, "the old one stops", func() bool { return dead.logs.count("has lost the Lease") == 1 }, func() string { return fmt.Sprint(dead.logs.lines) })
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
				wait(t, "refused three times", func() bool { return s.Refusals(c.resource) >= 3 }, func() string { return fmt.Sprint(a.logs.lines) })
				if n := a.logs.count(c.said); n != 1 {
					t.Errorf("said %d times: %v", n, a.logs.lines)
				}
				s.Refuse(0, c.resource)
				f.until(t, "p", "True", "Accepted", "")
			})
		}
	}
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
	wait(t, "it looks", looked, func() string { return "" })
	for _, r := range s.Requests() {
		if r.Client == "n1" {
			t.Errorf("asked: %+v", r)
		}
	}
	f.create(t, "p", 1, deny)
	set(true)
	f.until(t, "p", "True", "Accepted", "")
	set(false)
	wait(t, "the lease is free", func() bool { return f.holder(t) == "" }, func() string { return f.holder(t) })
}

// TestManyPolicies: 200 policies are written once each, no faster than the limit, and
// then nothing more.
func TestManyPolicies(t *testing.T) {
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
		if o.GetKind() == "Role" && !reflect.DeepEqual(role.Rules, policystatus.LeaseRights()) {
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
