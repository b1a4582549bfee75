package kubernetestest

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// ClusterPolicy returns a ClusterNetworkPolicy of the admin tier that denies ingress.
func ClusterPolicy(name string) *unstructured.Unstructured {
	namespaces := map[string]any{"namespaces": map[string]any{"matchLabels": map[string]any{"suite": name}}}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha2.GroupVersion.String(), "kind": "ClusterNetworkPolicy",
		"metadata": map[string]any{"name": name, "annotations": map[string]any{"note": "a long text"}},
		"spec": map[string]any{
			"tier": "Admin", "priority": int64(7), "subject": namespaces,
			"ingress": []any{map[string]any{"action": "Deny", "from": []any{namespaces}}},
		},
	}}
}

// ClusterPolicies returns a client for ClusterNetworkPolicies.
func ClusterPolicies(t testing.TB, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(schema.GroupVersion(v1alpha2.GroupVersion).WithResource("clusternetworkpolicies"))
}

// clusterPolicies: a server without the kind has none, and nothing waits for it.
func (s *suite) clusterPolicies(t *testing.T, admin *rest.Config) {
	policies, name := ClusterPolicies(t, admin), s.namespace
	if _, err := policies.List(s.ctx, metav1.ListOptions{}); apierrors.IsNotFound(err) {
		if seen := s.view.Sync(t); len(seen.ClusterPolicies) > 0 || !seen.Last.InSync {
			t.Errorf("without the kind: %v", seen.ClusterPolicies)
		}
		return
	}
	must(policies.Create(s.ctx, ClusterPolicy(name), metav1.CreateOptions{}))(t)
	t.Cleanup(func() { _ = policies.Delete(s.ctx, name, metav1.DeleteOptions{}) })
	got := s.view.Sync(t).ClusterPolicies[name]
	if got == nil || got.Spec.Tier != v1alpha2.AdminTier || got.Spec.Priority != 7 || len(got.Spec.Ingress) != 1 ||
		got.Spec.Subject.Namespaces == nil || got.Annotations != nil {
		t.Fatalf("created: %+v", got)
	}
	changed := must(policies.Get(s.ctx, name, metav1.GetOptions{}))(t)
	if err := unstructured.SetNestedField(changed.Object, int64(8), "spec", "priority"); err != nil {
		t.Fatal(err)
	}
	must(policies.Update(s.ctx, changed, metav1.UpdateOptions{}))(t)
	if got := s.view.Sync(t).ClusterPolicies[name]; got == nil || got.Spec.Priority != 8 {
		t.Errorf("changed: %+v", got)
	}
	if err := policies.Delete(s.ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if seen := s.view.Sync(t); seen.ClusterPolicies[name] != nil {
		t.Error("the deleted one is there")
	}
}
