package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// TestStageByKubectl: a real kubectl gives a policy of a real API server the annotation, and removes it; not if the policy was changed after the preview.
func TestStageByKubectl(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skipf("the test needs kubectl: %v", err)
	}
	config := kubernetestest.StartAPIServer(t)
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	policies := client.NetworkingV1().NetworkPolicies("default")
	if _, err := policies.Create(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "db"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	k := newFakeKubectl(t, pod("n1", ""))
	program := fmt.Sprintf("%s --server %s --token %s --insecure-skip-tls-verify --cache-dir %s", kubectl, config.Host, config.BearerToken, t.TempDir())
	fake, err := os.ReadFile(filepath.Join(k.dir, "kubectl"))
	if err != nil {
		t.Fatal(err)
	}
	script := strings.Replace(string(fake), "case \"$*\" in\n", "case \"$*\" in\n"+
		`"get networkpolicies.networking.k8s.io/"*|*" get networkpolicies.networking.k8s.io/"*) exec `+program+` "$@";;`+"\n"+
		`*" annotate "*) [ ! -e changes ] || `+program+` --namespace default label networkpolicy/db changed=yes; exec `+program+` "$@";;`+"\n", 1)
	k.file(t, "kubectl", script)
	k.answer(t, "n1", "preview -f -", 1, "\nthe preview\n")
	value := func() string {
		p, err := policies.Get(t.Context(), "db", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p.Annotations[model.EnforceAnnotation]
	}
	for _, step := range []struct {
		args string
		code int
		want string
	}{
		{"stage networkpolicy/db", 1, ""},
		{"stage netpol/nosuch --yes", 2, ""},
		{"stage networkpolicy/db --yes", 0, "no"},
		{"stage networkpolicy/db --yes", 0, "no"},
		{"enforce networkpolicy/db", 1, "no"},
		{"enforce networkpolicy/db --yes", 0, ""},
	} {
		if code, out := run(t.Context(), "", strings.Fields(step.args)...); code != step.code || value() != step.want {
			t.Errorf("%s: exit code %d, annotation %q\n%s", step.args, code, value(), out)
		}
	}
	// A manifest without the annotation takes it away only if kubectl apply has set it.
	plain := "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: default, name: db}\nspec: {podSelector: {}}\n"
	apply := func(text string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "sh", "-c", program+" apply -f -")
		c.Stdin = strings.NewReader(text)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	apply(plain)
	_, staged := run(t.Context(), plain, stageName, "-")
	if apply(staged); value() != "no" {
		t.Errorf("staged by kubectl apply: annotation %q", value())
	}
	if apply(plain); value() != "" {
		t.Errorf("staged and then enforced by kubectl apply: annotation %q", value())
	}
	if code, out := run(t.Context(), "", "stage", "networkpolicy/db", "--yes"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if apply(plain); value() != "no" {
		t.Errorf("staged by felixctl: annotation %q after kubectl apply", value())
	}
	if code, out := run(t.Context(), "", "enforce", "networkpolicy/db", "--yes"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	k.file(t, "changes", "")
	if code, out := run(t.Context(), "", "stage", "networkpolicy/db", "--yes"); code != 2 || value() != "" || !strings.Contains(out, "the object has been modified") {
		t.Errorf("changed in between: exit code %d, annotation %q\n%s", code, value(), out)
	}
}
