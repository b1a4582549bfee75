package manifests

import (
	"reflect"
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
		c := parse(name, data)
		if !reflect.DeepEqual(c, parse(name, data)) {
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
		if c.partial && len(c.problems) == 0 {
			t.Error("partial without a problem")
		}
		_, problems := combine([]*file{{name: name, content: c}}, cluster{})
		for _, p := range problems {
			if p.Reason == "" || p.Source != name || strings.TrimSpace(p.Object.String()) == "" {
				t.Errorf("problem without reason, source or object: %+v", p)
			}
		}
	})
}
