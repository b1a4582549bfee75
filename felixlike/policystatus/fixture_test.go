package policystatus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/policystatus"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

const (
	system = "felixlike-system"
	status = "clusternetworkpolicies/status"
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
	eventually.True(t, fmt.Sprintf("%s is %s, %s", name, wanted, reason), func() bool {
		all, generation := f.conditions(t, name)
		last = all[policystatus.ConditionAccepted]
		return last.Status == wanted && last.Reason == reason && last.ObservedGeneration == generation && strings.Contains(last.Message, message)
	}, func() string { return fmt.Sprintf("%+v", last) })
	return last
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
