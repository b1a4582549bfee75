package kubernetes_test

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
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

// TestAntreaKindsOnRealAPIServer: a real API server without Antrea's kinds, which come later with the
// definitions of deploy/. They take all that Antrea's examples use, and keep unknown fields, so that
// the agent sees them. The objects go with the definitions.
func TestAntreaKindsOnRealAPIServer(t *testing.T) {
	admin := kubernetestest.StartAPIServer(t)
	clients, err := clientset.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	if _, err := clients.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	v := kubernetestest.Open(t, admin, slog.New(slog.DiscardHandler), kubernetestest.NetNamespaces)
	if seen := v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync }); len(seen.Last.Problems) > 0 {
		t.Errorf("problems: %v", seen.Last.Problems)
	}
	client := newAntreaClient(t, admin)
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, crd := range slices.Concat(documents(t, "../../../deploy/components/antrea-crds/crds.yaml"), documents(t, "../../../deploy/base/egresses.yaml"), documents(t, "../../../deploy/base/externalippools.yaml"), documents(t, "../../../deploy/components/netnamespaces-crd/crd.yaml")) {
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range antreaIDs() {
		for {
			_, err := client.of(id).List(t.Context(), metav1.ListOptions{})
			if err == nil {
				break
			}
			select {
			case <-t.Context().Done():
				t.Fatal(err)
			case <-time.After(100 * time.Millisecond): // the kind is established
			}
		}
	}
	antreaChanges(t, v, client)
	antreaFaults(t, v, client)

	examples := documents(t, "testdata/antrea.yaml")
	for _, o := range examples {
		at := slices.IndexFunc(antrea.Kinds(), func(k antrea.Kind) bool { return k.String() == o.GetKind() })
		id := antrea.ID{Kind: antrea.Kinds()[at], Namespace: o.GetNamespace(), Name: o.GetName()}
		stored, err := client.of(id).Create(t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			t.Fatalf("%s: %v", id.Ref(), err)
		}
		if d := cmp.Diff(o.Object["spec"], stored.Object["spec"]); d != "" {
			t.Errorf("%s (-sent +stored):\n%s", id.Ref(), d)
		}
	}
	if seen := v.Sync(t); len(seen.Antrea) != len(examples) || len(seen.Last.Problems) > 0 {
		t.Errorf("%d of %d examples, problems: %v", len(seen.Antrea), len(examples), seen.Last.Problems)
	}
	for _, bad := range []string{
		`spec: {appliedTo: [{podSelector: {}}]}`,
		`spec: {priority: 0.5}`,
		`spec: {priority: 1, ingress: [{action: allow}]}`,
		`spec: {priority: 1, ingress: [{action: Drop, ports: [{endPort: 70000}]}]}`,
	} {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(bad), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetAPIVersion(antrea.GroupVersion().String())
		o.SetKind("ClusterNetworkPolicy")
		o.SetName("bad")
		if _, err := client.of(antrea.ID{Kind: antrea.KindClusterNetworkPolicy}).Create(t.Context(), o, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, k := range antreaKeys() {
		if err := crds.Delete(t.Context(), k, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	v.Until(t, "the objects are gone", func(s kubernetestest.Seen) bool { return len(s.Antrea) == 0 })
}

// documents returns the objects of a YAML file.
func documents(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		o := &unstructured.Unstructured{}
		text, err := yaml.YAMLToJSON([]byte(document))
		if err == nil {
			err = o.UnmarshalJSON(text)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, o)
	}
	return all
}
