package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPreviewReadsFilesHere: local files go to the node as standard input, with --node and without. Without, the node of a pod that the policy selects
// answers, if its agent is ready, or any.
func TestPreviewReadsFilesHere(t *testing.T) {
	unready := pod("n3", "")
	unready.Status.ContainerStatuses[0].Ready = false
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""), unready)
	const policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: shop, name: db}\nspec: {podSelector: {matchLabels: {app: db}}}\n"
	file := filepath.Join(t.TempDir(), "policy.yaml")
	services := filepath.Join(t.TempDir(), "services.yaml")
	for path, text := range map[string]string{file: policy, services: "kind: Service\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range []string{"n1", "n2"} {
		for _, command := range []string{"preview -o json -f -", "preview -f -", "preview -f - --services -"} {
			k.answer(t, node, command, 1, node+" previewed\n")
			k.file(t, "agent-"+node+" "+command+".stdin", "")
		}
		k.answer(t, node, "preview --delete shop/db", 0, node+" previewed\n")
	}
	k.file(t, "selected", "gone n3 n2")
	for _, c := range []struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		{"", []string{"preview", "-o", "json", "-f", file}, 1, policy + "n2 previewed"},
		{"", []string{"preview", "--filename=" + filepath.Dir(file)}, 1, policy + "n2 previewed"},
		{policy, []string{"preview", "-f", "-"}, 1, policy + "n2 previewed"},
		{"", []string{"preview", "-f" + file, "--services", services}, 1, policy + "\n---\nkind: Service\nn2 previewed"},
		{"", []string{"--node", "n1", "preview", "-f", file}, 1, policy + "n1 previewed"},
		{policy + "---\nkind: Secret\ndata: {a: hidden}\n", []string{"preview", "-f", "-"}, 1, `{"kind":"Secret"}n2 previewed`},
		{"", []string{"preview", "--delete", "shop/db"}, 0, "n1 previewed"},
		{"", []string{"preview", "-f", "nosuch"}, 2, "nosuch"},
	} {
		code, out := run(t.Context(), c.stdin, c.args...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d, want %q in\n%s", c.args, code, c.want, out)
		}
		if node := strings.TrimSuffix(c.want, " previewed"); len(c.args) > 0 && c.args[0] == "preview" && code != 2 && !strings.Contains(out, "node "+node[len(node)-2:]+" answers") {
			t.Errorf("%v: the node is not named:\n%s", c.args, out)
		}
	}
	expect(t, k.asked(t), "--namespace shop get pods --selector app=db")
}

// TestMigrateNeedsNoCluster: the plugin converts files without asking the cluster.
func TestMigrateNeedsNoCluster(t *testing.T) {
	k := newFakeKubectl(t)
	k.file(t, "asked", "")
	const policy = "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {namespace: shop, name: db}\nspec: {selector: app == 'db', types: [Ingress]}\n"
	if code, out := run(t.Context(), policy, "migrate", "convert", "-f", "-"); code != 0 || !strings.Contains(out, "networking.k8s.io/v1") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if asked := k.asked(t); asked != "" {
		t.Errorf("kubectl was asked %s", asked)
	}
}
