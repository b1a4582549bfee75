package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func runs() []Run {
	return []Run{
		{Kind: "policy", Backend: "nftables", Proxy: "iptables", Specs: []Spec{{"a", Passed, 2 * time.Second}, {"b|c", "failed", 3500 * time.Millisecond}}},
		{Kind: "policy", Backend: "openflow", Proxy: "iptables", Specs: []Spec{{"a", Passed, time.Second}}},
	}
}

const tables = `| specs | backend | kube-proxy | passed | failed | seconds of all specs |
|---|---|---|---|---|---|
| policy | nftables | iptables | 1 | 1 | 6 |
| policy | openflow | iptables | 1 | 0 | 1 |

### policy: seconds a spec

| spec | nftables, iptables | openflow, iptables |
|---|---|---|
| a | 2 | 1 |
| b\|c | **failed** |  |
`

func TestTables(t *testing.T) {
	if d := cmp.Diff(tables, Tables(runs())); d != "" {
		t.Error(d)
	}
}

func TestSavedRunsComeBack(t *testing.T) {
	dir := t.TempDir()
	for _, r := range runs() {
		if err := r.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	document := filepath.Join(dir, "doc.md")
	if err := os.WriteFile(document, []byte("head\n"+begin+"old\n"+end+"foot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Update(document, dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(document)
	if d := cmp.Diff("head\n"+begin+tables+end+"foot\n", string(text)); d != "" || err != nil {
		t.Error(err, d)
	}
}

// TestDocumentIsCurrent compares the tables in the documentation with their
// source files.
func TestDocumentIsCurrent(t *testing.T) {
	docs := filepath.Join("..", "..", "..", "docs")
	text, err := os.ReadFile(filepath.Join(docs, "results", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	runs, err := Load(filepath.Join(docs, "results", "conformance"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := Insert(string(text), runs)
	if d := cmp.Diff(want, string(text)); d != "" || err != nil {
		t.Errorf("docs/results/conformance.md differs from docs/results/conformance: %v\n%s", err, d)
	}
}

func TestBadFilesAreNamed(t *testing.T) {
	for name, text := range map[string]string{"a-b-c.tsv": "x\ty\n", "a-b.tsv": "", "d-e-f.tsv": "x\tpassed\tsoon\n"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
