package manifests

import (
	"strings"
	"testing"
)

// TestOnlyPolicies: the content of other objects does not leave, in lists neither; the objects stay named. A file of policies stays as it is.
func TestOnlyPolicies(t *testing.T) {
	const policy = "kind: NetworkPolicy\nmetadata: {namespace: shop, name: db}\nspec: {podSelector: {}}\n"
	const list = "---\napiVersion: v1\nkind: List\nitems:\n- {kind: Secret, metadata: {name: in-list, annotations: {last: hidden}}, data: {a: hidden}}\n- {kind: NetworkPolicy, metadata: {name: listed}}\n"
	for _, c := range []struct {
		text          string
		services      bool
		has, lacks, e string
	}{
		{text: policy + "# as it is\n", has: policy + "# as it is\n"},
		{text: policy + "---\nkind: Secret\nmetadata: {name: s}\nstringData: {a: hidden}\n", has: `{"kind":"Secret","metadata":{"name":"s"}}`, lacks: "hidden"},
		{text: policy + list, has: `"listed"`, lacks: "hidden"},
		{text: policy + list, has: `"in-list"`, lacks: "hidden"},
		{text: policy + "---\npassword: hidden\n", has: "---\n{}", lacks: "hidden"},
		{text: policy + "---\nkind: Service\nspec: {a: b}\n", has: `{"kind":"Service"}`, lacks: `"b"`},
		{text: "kind: Service\nspec: {a: b}\n", services: true, has: "spec: {a: b}"},
		{text: policy + "spec: {}\n", e: "a.yaml: "},
		{text: "{", e: "a.yaml: "},
	} {
		out, err := OnlyPolicies("a.yaml", []byte(c.text), c.services)
		if c.e != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.e) {
				t.Errorf("%q: error %v", c.text, err)
			}
			continue
		}
		if got := string(out); err != nil || !strings.Contains(got, c.has) || c.lacks != "" && strings.Contains(got, c.lacks) {
			t.Errorf("%q: %q, %v", c.text, got, err)
		}
	}
}
