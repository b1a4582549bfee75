package kubernetes_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

const clusterPolicies = "clusternetworkpolicies"

func (f *fixture) clusterPolicies(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	return kubernetestest.ClusterPolicies(t, f.Config(kubernetestest.Admin))
}

func (f *fixture) clusterPolicy(t *testing.T, name string) {
	t.Helper()
	if _, err := f.clusterPolicies(t).Create(t.Context(), kubernetestest.ClusterPolicy(name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestClusterPoliciesArrive: without the CustomResourceDefinition, all else is in sync.
// Once they are served, they come.
func TestClusterPoliciesArrive(t *testing.T) {
	f := newFixture(t)
	f.Refuse(http.StatusNotFound, clusterPolicies)
	f.pods(t, "a")
	f.clusterPolicy(t, "p")
	v := f.open(t)
	seen := v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync })
	if len(seen.ClusterPolicies) > 0 || !has("a")(seen) || len(seen.Last.Problems) > 0 {
		t.Errorf("policies: %v, problems: %v", seen.ClusterPolicies, seen.Last.Problems)
	}
	f.Refuse(0, clusterPolicies)
	// Sync has the source look at once.
	if seen := v.Sync(t); seen.ClusterPolicies["p"] == nil || len(seen.Last.Problems) > 0 {
		t.Errorf("once they are served: %v, %v", seen.ClusterPolicies, seen.Last.Problems)
	}
}

// logLines is the log of a source.
type logLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestAbsentKindIsNoticed: the source itself notices that a kind is served. It asks for the
// resources of the group, and lists the kind only when they name it. The log has one line.
func TestAbsentKindIsNoticed(t *testing.T) {
	f := newFixture(t)
	f.Refuse(http.StatusNotFound, clusterPolicies)
	f.Hide(clusterPolicies, true)
	f.clusterPolicy(t, "p")
	lines := &logLines{}
	source, err := kubernetes.New(kubernetes.Options{
		Config: f.Config("agent"), Node: "n1", Log: slog.New(slog.NewTextHandler(lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	source.AskEvery(10 * time.Millisecond)
	v := kubernetestest.Follow(t, source)
	v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync })
	const group = "/apis/policy.networking.k8s.io/v1alpha2"
	eventually.True(t, "it asks five times", func() bool { return f.Asked(group) >= 5 })
	if n := f.Refusals(clusterPolicies); n != 1 {
		t.Errorf("%d lists of an absent kind", n)
	}
	if n := strings.Count(lines.String(), "does not serve"); n != 1 || strings.Contains(lines.String(), "level=WARN") {
		t.Errorf("%d lines about the absent kind:\n%s", n, lines)
	}
	f.Refuse(0, clusterPolicies)
	f.Hide(clusterPolicies, false)
	v.Until(t, "the policy", func(s kubernetestest.Seen) bool { return s.ClusterPolicies["p"] != nil })
	if !strings.Contains(lines.String(), "serves all kinds") {
		t.Errorf("the log does not say that the kind is there:\n%s", lines)
	}
}

// TestForbiddenClusterPolicies: an agent that starts without the right to read them is not
// in sync and says so, because a Deny may be among them. Once it has the right, it is.
func TestForbiddenClusterPolicies(t *testing.T) {
	f := newFixture(t)
	f.Refuse(http.StatusForbidden, clusterPolicies)
	f.pods(t, "a")
	f.clusterPolicy(t, "p")
	v := f.open(t)
	named := func(s kubernetestest.Seen) bool {
		return has("a")(s) && slices.ContainsFunc(s.Last.Problems, func(p model.Problem) bool {
			return p.Field == clusterPolicies && strings.Contains(strings.ToLower(p.Reason), "forbidden")
		})
	}
	v.Until(t, "the refusal is named", named)
	for f.Refusals(clusterPolicies) < 5 { // each change is a batch, and none of them is in sync
		f.pods(t, "b")
		if seen := v.Until(t, "pod b", has("b")); seen.Last.InSync || !named(seen) {
			t.Fatalf("in sync: %t, problems: %v", seen.Last.InSync, seen.Last.Problems)
		}
		f.deletePod(t, "b")
		v.Until(t, "no pod b", func(s kubernetestest.Seen) bool { return !has("b")(s) })
	}
	f.Refuse(0, clusterPolicies)
	seen := v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync })
	if seen.ClusterPolicies["p"] == nil || len(seen.Last.Problems) > 0 {
		t.Errorf("with the right to read them: %v, %v", seen.ClusterPolicies, seen.Last.Problems)
	}
}

// TestForbiddenWithoutTheKind: an API server without the kind forbids it to an agent without
// the right to it. The agent goes on without ClusterNetworkPolicies, and names the refusal
// once the kind is there.
func TestForbiddenWithoutTheKind(t *testing.T) {
	f := newFixture(t)
	f.Refuse(http.StatusForbidden, clusterPolicies)
	f.Hide(clusterPolicies, true)
	f.pods(t, "a")
	v := f.open(t)
	seen := v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync })
	if len(seen.Last.Problems) > 0 {
		t.Errorf("problems: %v", seen.Last.Problems)
	}
	f.Hide(clusterPolicies, false)
	f.clusterPolicy(t, "p")
	f.Refuse(0, clusterPolicies)
	// Sync has the source look at once.
	if seen := v.Sync(t); seen.ClusterPolicies["p"] == nil || len(seen.Last.Problems) > 0 {
		t.Errorf("once the kind is there: %v, %v", seen.ClusterPolicies, seen.Last.Problems)
	}
}

// TestNoOptionalKind: two kinds that are not served do not wait for each other.
func TestNoOptionalKind(t *testing.T) {
	f := newFixture(t)
	f.Refuse(http.StatusNotFound, clusterPolicies)
	f.Refuse(http.StatusForbidden, "servicecidrs")
	f.open(t).Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync })
}

// TestClusterPoliciesLeave: policies go when the API server says that there is no such
// kind, and stay when it fails in any other way.
func TestClusterPoliciesLeave(t *testing.T) {
	f := newFixture(t)
	f.clusterPolicy(t, "p")
	v := f.open(t)
	if v.Sync(t).ClusterPolicies["p"] == nil {
		t.Fatal("the policy is missing")
	}
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusForbidden, http.StatusInternalServerError} {
		f.Refuse(status, clusterPolicies)
		f.Compact()
		f.Break()
		seen := v.Until(t, http.StatusText(status), func(s kubernetestest.Seen) bool {
			return len(s.Last.Problems) == 1 && s.Last.Problems[0].Field == clusterPolicies &&
				strings.Contains(s.Last.Problems[0].Reason, strings.ToLower(http.StatusText(status))) ||
				len(s.Last.Problems) == 1 && strings.Contains(s.Last.Problems[0].Reason, http.StatusText(status))
		})
		if seen.ClusterPolicies["p"] == nil || seen.Deleted > 0 {
			t.Errorf("%s: the policy is gone", http.StatusText(status))
		}
	}
	f.Refuse(http.StatusNotFound, clusterPolicies)
	f.Break()
	v.Until(t, "the policy is gone", func(s kubernetestest.Seen) bool { return len(s.ClusterPolicies) == 0 && len(s.Last.Problems) == 0 })
	f.Refuse(0, clusterPolicies)
	if v.Sync(t).ClusterPolicies["p"] == nil {
		t.Error("the policy does not come back")
	}
}

// TestClusterPoliciesOfNewerServers: an unknown field in a policy fails closed, and the problem names it.
func TestClusterPoliciesOfNewerServers(t *testing.T) {
	const head = `"tier":"Admin","priority":7,"subject":{"namespaces":{}}`
	const rule = `{"action":"Accept","from":[{"namespaces":{}}]}`
	cases := []struct{ name, rest, field, left string }{
		{"good", `"spec":{` + head + `,"ingress":[` + rule + `]},"status":{"conditions":[],"more":1}`, "", `{` + head + `,"ingress":[` + rule + `]}`},
		{"peer", `"spec":{` + head + `,"ingress":[{"action":"Deny","from":[{"sni":"a"}]},` + rule + `]}`, "spec.ingress[0].from[0].sni", `{` + head + `,"ingress":[{"action":"Deny","from":null},` + rule + `]}`},
		{"protocol", `"spec":{` + head + `,"egress":[{"action":"Pass","to":[{"namespaces":{}}],"protocols":[{"icmp":{}}]}]}`, "spec.egress[0].protocols[0].icmp", `{` + head + `,"egress":[{"action":"Pass","to":null}]}`},
		{"spec", `"spec":{` + head + `,"mode":"x","ingress":[` + rule + `]}`, "spec.mode", `{` + head + `,"ingress":[{"action":"","from":null}],"egress":[{"action":"","to":null}]}`},
		{"subject", `"spec":{"tier":"Admin","priority":7,"subject":{"nodes":{}},"ingress":[` + rule + `]}`, "spec.subject.nodes", `{"tier":"Admin","priority":7,"subject":{},"ingress":[` + rule + `]}`},
		{"tier", `"spec":{"tier":1,"priority":7,"subject":{"namespaces":{}}}`, "spec.tier", `{"tier":"","priority":7,"subject":{"namespaces":{}}}`},
		{"priority", `"spec":{"tier":"Admin","priority":"high","subject":{"namespaces":{}}}`, "spec.priority", `{"tier":"Admin","priority":-1,"subject":{"namespaces":{}}}`},
		{"rules", `"spec":{` + head + `,"ingress":"all"}`, "spec.ingress", `{` + head + `,"ingress":[{"action":"","from":null}]}`},
	}
	f := newFixture(t)
	f.clusterPolicy(t, "other")
	v := f.open(t)
	policies := f.clusterPolicies(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			text := `{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":"p","newInMetadata":1},` + c.rest + `}`
			if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
				t.Fatal(err)
			}
			_, err := policies.Update(t.Context(), o, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			seen := v.Sync(t)
			if seen.ClusterPolicies["p"] == nil || seen.ClusterPolicies["other"] == nil {
				t.Fatalf("missing: %v", seen.ClusterPolicies)
			}
			var want v1alpha2.ClusterNetworkPolicySpec
			if err := json.Unmarshal([]byte(c.left), &want); err != nil {
				t.Fatal(err)
			}
			got, wanted := must(json.Marshal(seen.ClusterPolicies["p"].Spec)), must(json.Marshal(want))
			if string(got) != string(wanted) {
				t.Errorf("got  %s\nwant %s", got, wanted)
			}
			problems := seen.Last.Problems
			if named := len(problems) == 1 && problems[0].Object.String() == "clusternetworkpolicy/p" && problems[0].Field == c.field; named != (c.field != "") {
				t.Errorf("problems: %v", problems)
			}
		})
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		return []byte(err.Error())
	}
	return data
}
