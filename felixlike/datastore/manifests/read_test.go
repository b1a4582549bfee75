package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/datastore"
)

// TestParseFileOfNoFile: a FIFO or device is refused at once.
func TestParseFileOfNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo.yaml")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, dir, "/dev/zero"} {
		if _, _, err := ParseFile(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestParseFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: x}\nspec: {podSelector: {}}\n---\nkind: Secret\n",
		"b.json": `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"b"},"spec":{"podSelektor":{}}}`,
		"c.txt":  "no manifest",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	events, problems, err := ParseFile(dir)
	if err != nil || len(events) != 1 || len(problems) != 2 {
		t.Fatalf("events %v, problems %v, %v", events, problems, err)
	}
	set, ok := events[0].(datastore.NetworkPolicySet)
	if !ok || set.Policy.Name != "a" || len(set.Policy.Spec.PolicyTypes) != 1 || set.Source != filepath.Join(dir, "a.yaml") {
		t.Errorf("event %+v", events[0])
	}
	if problems[0].Source != filepath.Join(dir, "a.yaml") || problems[1].Object.Name != "b" {
		t.Errorf("problems %v", problems)
	}
	if _, _, err := ParseFile(filepath.Join(dir, "missing.yaml")); err == nil {
		t.Error("a file that is not there was read")
	}
}
