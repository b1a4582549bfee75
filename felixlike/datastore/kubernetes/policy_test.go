package kubernetes_test

import (
	"encoding/json"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// TestPoliciesOfNewerServers: an unknown field closes a policy; a field that is known to have no effect does
// not.
func TestPoliciesOfNewerServers(t *testing.T) {
	const good = `"podSelector":{"matchLabels":{"app":"a"}},"policyTypes":["Ingress"],"ingress":[{}]`
	const isolated, everybody = "the pods it selects are isolated", "every pod of the namespace is isolated"
	cases := []struct {
		name, rest, field, reason string
		whole                     bool
	}{
		{name: "good", rest: `"spec":{` + good + `}`},
		{name: "status", rest: `"spec":{` + good + `},"status":{"conditions":[{"type":"Accepted"}]}`},
		{name: "peer", rest: `"spec":{"podSelector":{"matchLabels":{"app":"a"}},"ingress":[{"from":[{"sni":"a.example"}]}]}`, field: "spec.ingress[0].from[0].sni", reason: "unknown field; closed: " + isolated},
		{name: "spec", rest: `"spec":{` + good + `,"priority":7}`, field: "spec.priority", reason: "unknown field; closed: " + isolated},
		{name: "top", rest: `"spec":{` + good + `},"more":{}`, field: "more", reason: "unknown field; closed: " + isolated},
		{name: "selector", rest: `"spec":{"podSelector":{"matchNames":["a"]}}`, field: "spec.podSelector.matchNames", reason: "unknown field; closed: " + everybody, whole: true},
		{name: "type", rest: `"spec":{"podSelector":{},"ingress":"all"}`, field: "spec.ingress", reason: "wrong type: got string, want a list; closed: " + isolated},
	}
	f := newFixture(t)
	v := f.open(t)
	client, err := dynamic.NewForConfig(f.Config(kubernetestest.Admin))
	if err != nil {
		t.Fatal(err)
	}
	policies := client.Resource(schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}).Namespace("x")
	put := func(t *testing.T, rest string) {
		t.Helper()
		o := &unstructured.Unstructured{}
		text := `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"x","newInMetadata":1},` + rest + `}`
		if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		_, err := policies.Update(t.Context(), o, metav1.UpdateOptions{})
		if err != nil {
			_, err = policies.Create(t.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			put(t, cases[0].rest)
			if seen := v.Sync(t); seen.Policies["x/p"] == nil || len(seen.Last.Problems) > 0 {
				t.Fatalf("at first: %v, %v", seen.Policies, seen.Last.Problems)
			}
			put(t, c.rest)
			seen := v.Sync(t)
			closed, isClosed := seen.Closed["x/p"]
			if isClosed != (c.reason != "") || (seen.Policies["x/p"] != nil) == isClosed {
				t.Fatalf("closed: %v", isClosed)
			}
			if !isClosed {
				return
			}
			if (closed.PodSelector == nil) != c.whole {
				t.Errorf("selector: %v", closed.PodSelector)
			}
			if len(seen.Last.Problems) != 1 {
				t.Fatalf("problems: %v", seen.Last.Problems)
			}
			p := seen.Last.Problems[0]
			if p.Object.String() != "networkpolicy/x/p" || p.Field != c.field || p.Reason != c.reason {
				t.Errorf("got %q %q, want %q %q", p.Field, p.Reason, c.field, c.reason)
			}
		})
	}
	if err := policies.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if seen := v.Sync(t); len(seen.Closed)+len(seen.Policies)+len(seen.Last.Problems) > 0 {
		t.Errorf("left: %v %v", seen.Closed, seen.Last.Problems)
	}
}

// TestObjectBehindTheFirstList: an object that comes directly after the first list may be
// read before the list is in the store. The list must be complete, because the store deletes
// objects that it lacks.
func TestObjectBehindTheFirstList(t *testing.T) {
	server := watch.NewFakeWithChanSize(3, false)
	named := func(name string, annotations map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": map[string]any{"podSelector": map[string]any{}},
			"metadata": map[string]any{"namespace": "x", "name": name, "resourceVersion": "7", "annotations": annotations},
		}}
	}
	server.Add(named("listed", nil))
	server.Action(watch.Bookmark, named("", map[string]any{metav1.InitialEventsAnnotationKey: "true"}))
	server.Add(named("later", nil))
	w, err := kubernetes.WatchFirst(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var whole []bool
	for range 3 {
		whole = append(whole, kubernetes.Whole((<-w.ResultChan()).Object))
	}
	// Of what is in the list, the store has the rest already.
	if !slices.Equal(whole, []bool{false, false, true}) {
		t.Errorf("whole: %v", whole)
	}
}
