package kubernetes_test

import (
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// TestForbiddenOnRealAPIServer: a real API server without the kind, and an agent without
// the right to it. Both come later.
func TestForbiddenOnRealAPIServer(t *testing.T) {
	admin := kubernetestest.StartAPIServer(t)
	client, err := clientset.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	const user, group = "agent", "policy.networking.k8s.io"
	rules := slices.DeleteFunc(kubernetes.Rights(), func(r rbacv1.PolicyRule) bool { return r.APIGroups[0] == group })
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	if role, err = client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	agent := rest.CopyConfig(admin)
	agent.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	v := kubernetestest.Open(t, agent, slog.New(slog.DiscardHandler))
	seen := v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync })
	if len(seen.Last.Problems) > 0 {
		t.Errorf("problems: %v", seen.Last.Problems)
	}

	role.Rules = kubernetes.Rights()
	if _, err := client.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("../../../deploy/base/clusternetworkpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kind := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &kind.Object); err != nil {
		t.Fatal(err)
	}
	all, err := dynamic.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	crds := all.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := crds.Create(t.Context(), kind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	policies := kubernetestest.ClusterPolicies(t, admin)
	for {
		if _, err = policies.Create(t.Context(), kubernetestest.ClusterPolicy("p"), metav1.CreateOptions{}); err == nil {
			break
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-time.After(100 * time.Millisecond): // the kind is established
		}
	}
	if seen := v.Sync(t); seen.ClusterPolicies["p"] == nil {
		t.Errorf("once the kind is there: %v, %v", seen.ClusterPolicies, seen.Last.Problems)
	}
}
