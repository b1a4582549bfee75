package manifests

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "---\n---", "\ufeffkind: List\napiVersion: v1\nitems: [{}]\n", "a: &a [*a]", "--- |\n---x\n...\nb",
		podYAML("x", "a"), policyYAML("x", "p", "a") + "  foo: 1\n", "kind: Pod\nkind: Pod\nmetadata: {name: a}",
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}{`, `{"kind":null,"metadata":[]}`, "kind: Pod\nmetadata: {name: .inf}",
	} {
		f.Add([]byte(text), false)
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		name := "a.yaml"
		if isJSON {
			name = "a.json"
		}
		c := parse(name, data, true)
		if !reflect.DeepEqual(c, parse(name, data, true)) {
			t.Fatal("two parses differ")
		}
		seen := map[key]bool{}
		for _, e := range c.entries {
			if seen[e.key] || e.key.kind.checkName(e.key.name) != "" || e.key.kind.namespaced() != (e.key.namespace != "") {
				t.Errorf("entry %v is there twice or badly named", e.key)
			}
			seen[e.key] = true
			if (e.object != nil) == (len(e.problems) > 0) {
				t.Errorf("entry %v: object %v with problems %v", e.key, e.object, e.problems)
			}
			if e.object != nil && (e.object.GetName() != e.key.name || e.object.GetNamespace() != e.key.namespace) {
				t.Errorf("entry %v holds %s/%s", e.key, e.object.GetNamespace(), e.object.GetName())
			}
		}
		_, problems := combine([]*file{{name: name, content: c}}, cluster{})
		for _, p := range problems {
			if p.Reason == "" || p.Source != name || strings.TrimSpace(p.Object.String()) == "" {
				t.Errorf("problem without reason, source or object: %+v", p)
			}
		}
	})
}

// FuzzCopy: whatever is in the state directory, an agent starts, and what it takes it writes in the same way.
func FuzzCopy(f *testing.F) {
	c := newCopies("/state", "/manifests", true, slog.New(slog.DiscardHandler))
	for _, text := range []string{podYAML("x", "a"), policyYAML("x", "p", "a") + "---\nkind: Pod\nkind: Pod\nmetadata: {name: a}\n"} {
		first := &file{name: "a.yaml", content: parse("a.yaml", []byte(text), true)}
		data, err := c.encode("a.yaml", first.versions(cluster{}))
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := bytes.Cut(data, []byte("\n"))
		f.Add(body)
	}
	f.Add([]byte("{}\nnull\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		header, err := json.Marshal(copyHeader{Directory: `"/manifests"`, File: `"a.yaml"`, SHA256: sumOf(body)})
		if err != nil {
			t.Fatal(err)
		}
		read, err := c.decode("a.yaml", slices.Concat(header, []byte("\n"), body))
		if err != nil {
			return
		}
		data, err := c.encode("a.yaml", read.versions(cluster{}))
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.decode("a.yaml", data)
		if err != nil || len(again.content.entries) != len(read.content.entries) {
			t.Fatalf("%d objects became %v, %v", len(read.content.entries), again, err)
		}
	})
}
