package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/model"
)

// TestStageAndEnforce: the annotation is written after a preview of the policy as it will be. If verdicts change, that takes --yes.
func TestStageAndEnforce(t *testing.T) {
	const (
		bare     = `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"namespace":"shop","name":"db","resourceVersion":"7"},"spec":{"podSelector":{}}}`
		nodes    = `{"apiVersion":"crd.antrea.io/v1beta1","kind":"ClusterNetworkPolicy","metadata":{"name":"db","annotations":{"felixlike.io/enforce":"maybe"}},"spec":{"appliedTo":[{"nodeSelector":{}}]}}`
		before   = `"resourceVersion":"7"`
		preview  = "preview -f -"
		previews = "exec --stdin pod/agent-n1 --container agent -- felixctl preview"
	)
	staged, unknown := strings.Replace(bare, before, before+`,"annotations":{"a":"b","felixlike.io/enforce":"no"}`, 1), strings.Replace(bare, before, before+`,"annotations":{"felixlike.io/enforce":"maybe"}`, 1)
	for name, test := range map[string]struct {
		policy  string
		preview int
		args    string
		code    int
		// sees is what the node previews, writes the change; "" for none.
		sees, writes string
		says         string
	}{
		"stage, nothing changes": {bare, 0, "-n shop stage networkpolicy/db", 0, `"annotations":{"felixlike.io/enforce":"no"}`, "felixlike.io/enforce=no", "networkpolicy/shop/db is staged"},
		"stage, without --yes":   {bare, 1, "stage networkpolicy/db -n shop", 1, `"annotations":{"felixlike.io/enforce":"no"}`, "", "is not staged: give --yes"},
		"stage with --yes":       {bare, 1, "stage networkpolicy/shop/db --yes", 0, `"annotations":{"felixlike.io/enforce":"no"}`, "felixlike.io/enforce=no", "networkpolicy/shop/db is staged"},
		"stage over a typo":      {unknown, 1, "stage networkpolicy/db -n shop --yes", 0, `"annotations":{"felixlike.io/enforce":"no"}`, "felixlike.io/enforce=no", "networkpolicy/shop/db is staged"},
		"staged already":         {staged, 1, "stage networkpolicy/shop/db", 0, "", "", "is staged already"},
		"enforce, on a node":     {staged, 1, "--node n1 enforce networkpolicy/db -n shop --yes", 0, `"annotations":{"a":"b"}`, "felixlike.io/enforce-", "networkpolicy/shop/db is enforced"},
		"enforce, without --yes": {staged, 1, "enforce networkpolicy/shop/db", 1, `"annotations":{"a":"b"}`, "", "is not enforced: give --yes"},
		"enforced already":       {bare, 1, "enforce networkpolicy/db -n shop", 0, "", "", "is enforced already"},
		"the preview fails":      {bare, 2, "stage networkpolicy/db -n shop --yes", 2, `"annotations":{"felixlike.io/enforce":"no"}`, "", "nothing is written"},
		"another kind":           {strings.Replace(bare, "networking.k8s.io", "projectcalico.org", 1), 0, "stage networkpolicy/db -n shop --yes", 2, "", "", "cannot be staged"},
		"for nodes":              {nodes, 0, "stage networkpolicy/db --yes", 2, "", "", "a policy for nodes cannot be staged"},
		"a rule for nodes":       {strings.Replace(nodes, `"appliedTo":`, `"ingress":[{"appliedTo":[{"nodeSelector":{}}]}],"no":`, 1), 0, "enforce networkpolicy/db --yes", 2, "", "", "a policy for nodes cannot be staged"},
		"kubectl's namespace":    {bare, 0, "stage networkpolicy/db", 0, `"annotations":{"felixlike.io/enforce":"no"}`, "felixlike.io/enforce=no", "networkpolicy/shop/db is staged"},
		"a flag of kubectl":      {bare, 0, "stage --yes -n shop -- --all", 2, "", "", "not KIND/NAMESPACE/NAME or KIND/NAME"},
		"a bare name":            {bare, 0, "stage db --yes", 2, "", "", "not KIND/NAMESPACE/NAME or KIND/NAME"},
		"a cluster-scoped one":   {`{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":"db"}}`, 0, "stage clusternetworkpolicy/shop/db --yes", 2, "", "", "ClusterNetworkPolicy has no namespaces"},
		"another namespace":      {bare, 0, "stage networkpolicy/shop/db -n x --yes", 2, "", "", "is not in the namespace x"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFakeKubectl(t, pod("n1", ""))
			k.file(t, "asked", "")
			k.file(t, "policy", test.policy)
			k.answer(t, "n1", preview, test.preview, "\nthe preview\n")
			k.file(t, "agent-n1 "+preview+".stdin", "")
			code, out := run(t.Context(), "", strings.Fields(test.args)...)
			asked := k.asked(t)
			if code != test.code || !strings.Contains(out, test.says) || !strings.Contains(out, test.sees) || strings.Contains(asked, previews) != (test.sees != "") {
				t.Errorf("exit code %d\n%s\n%s", code, out, asked)
			}
			if got := strings.HasPrefix(asked, "get networkpolicies.networking.k8s.io/db ") || strings.Contains(asked, "\nget networkpolicies.networking.k8s.io/db "); got != (!strings.Contains(test.args, "-n ") && !strings.Contains(test.args, "/shop/") && strings.Contains(test.args, "/")) {
				t.Errorf("with the namespace of kubectl's context: %v\n%s", got, asked)
			}
			if want := "--namespace shop annotate networkpolicies.networking.k8s.io/db " + test.writes + " --overwrite --resource-version=7\n"; strings.Contains(asked, " annotate ") != (test.writes != "") || test.writes != "" && !strings.HasSuffix(asked, want) {
				t.Errorf("asked\n%s", asked)
			}
		})
	}
}

// TestStageFile: the policies of a file are staged when agents read the output. All else stays.
func TestStageFile(t *testing.T) {
	const text = `# the database
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: db}
spec:
  podSelector: {} # all
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
data: {a: "yes"}
---
apiVersion: v1
kind: List
items:
- apiVersion: policy.networking.k8s.io/v1alpha2
  kind: ClusterNetworkPolicy
  metadata:
    name: no-dns
    annotations: {felixlike.io/enforce: "yes", team: a}
  spec: {tier: Admin, priority: 1, subject: {namespaces: {}}}
- apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {namespace: shop, name: web, annotations: null}
  spec: {podSelector: {}}
- {apiVersion: network.openshift.io/v1, kind: EgressNetworkPolicy, metadata: {namespace: shop, name: out}, spec: {egress: []}}
`
	k := newFakeKubectl(t)
	k.file(t, "asked", "")
	file := filepath.Join(t.TempDir(), "db.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out := run(t.Context(), "", stageName, file)
	for _, left := range []string{": line 8: configmap/other cannot be staged: it is left as it is\n", ": line 26: egressnetworkpolicy/shop/out cannot be staged: it is left as it is\n"} {
		if !strings.Contains(out, file+left) {
			t.Errorf("without %q\n%s", left, out)
		}
	}
	out, _, _ = strings.Cut(out, file)
	events, problems := manifests.Parse("out", []byte(out))
	if code != 0 || len(problems) != 1 || len(events) != 4 { // the ConfigMap is a problem
		t.Fatalf("exit code %d, %v, %d objects\n%s", code, problems, len(events), out)
	}
	for _, e := range events {
		var annotations map[string]string
		switch e := e.(type) {
		case datastore.NetworkPolicySet:
			annotations = e.Policy.Annotations
		case datastore.ClusterNetworkPolicySet:
			annotations = e.Policy.Annotations
		default:
			continue
		}
		if annotations[model.EnforceAnnotation] != "no" {
			t.Errorf("not staged: %v\n%s", e, out)
		}
	}
	for _, kept := range []string{"# the database\n", "podSelector: {} # all\n", "kind: ConfigMap\n", `data: {a: "yes"}`, "team: a"} {
		if !strings.Contains(out, kept) {
			t.Errorf("without %q\n%s", kept, out)
		}
	}
	if code, again := run(t.Context(), out, stageName, "-"); code != 0 || !strings.HasPrefix(again, out) {
		t.Errorf("exit code %d, of its own output:\n%s", code, again)
	}
	for _, bad := range []string{"", "# empty\n", "---\n", "---\n---\n# x\n---\n", "null\n", "kind: ConfigMap\napiVersion: v1\n", "a: [", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {annotations: [a]}\n"} {
		if code, out := run(t.Context(), bad, stageName, "-"); code != 2 || !strings.Contains(out, "standard input: ") {
			t.Errorf("%q: exit code %d\n%s", bad, code, out)
		}
	}
	const policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"
	for name, bad := range map[string]string{
		"merged root":      "x: &x {metadata: {name: db}}\n<<: *x\n" + policy,
		"merged metadata":  policy + "x: &x {name: db}\nmetadata: {<<: *x}\n",
		"alias":            policy + "x: &x {name: db}\nmetadata: *x\n",
		"annotations":      policy + "x: &x {a: b}\nmetadata: {name: db, annotations: *x}\n",
		"merged in":        policy + "x: &x {felixlike.io/enforce: \"no\"}\nmetadata: {name: db, annotations: {<<: *x}}\n",
		"the value":        policy + "metadata: {name: db, annotations: {felixlike.io/enforce: &x \"yes\", a: *x}}\n",
		"shared":           policy + "metadata: {name: db, annotations: &x {a: b}, labels: *x}\n",
		"an alias of item": "kind: List\nitems:\n- &x {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db}}\n- *x\n",
		"for nodes":        "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: db}\nspec: {egress: [{appliedTo: [{nodeSelector: {}}]}]}\n",
	} {
		reason := "write the fields out"
		if name == "for nodes" {
			reason = "a policy for nodes cannot be staged"
		}
		if code, out := run(t.Context(), bad, stageName, "-"); code != 2 || !strings.HasPrefix(out, "standard input: line ") || !strings.Contains(out, "/db: ") || !strings.Contains(out, reason) {
			t.Errorf("%s: exit code %d\n%s", name, code, out)
		}
	}
	if asked := k.asked(t); asked != "" {
		t.Errorf("kubectl was asked %s", asked)
	}
}
