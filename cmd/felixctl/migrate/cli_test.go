package migrate

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/report"
)

const (
	calicoText = "{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: a, namespace: shop}, spec: {ingress: [%]}}\n"
	ciliumText = "{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: a}, spec: {endpointSelector: {}, ingress: [{}]}}\n"
)

func run(stdin string, args ...string) (stdout, stderr string, err error) {
	var out, problems bytes.Buffer
	c := Command()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	c.SetIn(strings.NewReader(stdin))
	c.SetOut(&out)
	c.SetErr(&problems)
	err = c.Execute()
	return out.String(), problems.String(), err
}

// TestCommands: a conversion without losses succeeds. With a loss, the command says which, and ends with exit code 1.
func TestCommands(t *testing.T) {
	allow, deny := strings.Replace(calicoText, "%", "{action: Allow}", 1), strings.Replace(calicoText, "%", "{action: Deny, http: {}}", 1)
	out, problems, err := run(allow, "convert", "-f", "-")
	if err != nil || problems != "" || !strings.Contains(out, "name: calico-a") {
		t.Errorf("convert: %v\n%s%s", err, out, problems)
	}
	out, problems, err = run(deny, "convert", "-f", "-")
	if !errors.Is(err, report.ErrNotInOrder) || out != "" || !strings.Contains(problems, "shop/a: spec.ingress[0]: http has no counterpart") {
		t.Errorf("convert with a loss: %v\n%s%s", err, out, problems)
	}
	out, _, err = run(allow, "check", "-f", "-")
	if err != nil || !strings.Contains(out, "NetworkPolicy.networking.k8s.io shop/calico-a") {
		t.Errorf("check: %v\n%s", err, out)
	}
	out, _, err = run(deny, "check", "-f", "-", "-o", "json")
	if !errors.Is(err, report.ErrNotInOrder) || !strings.Contains(out, `"field": "spec.ingress[0]"`) {
		t.Errorf("check with a loss: %v\n%s", err, out)
	}
}

// TestWrongInput: input that cannot be read as a whole is an error, and nothing of it is converted.
func TestWrongInput(t *testing.T) {
	allow := strings.Replace(calicoText, "%", "", 1)
	for text, want := range map[string]string{
		"":                      "no policy",
		"{kind: NetworkPolicy}": "kind and apiVersion are required",
		"a: [":                  "document 1",
		"{apiVersion: v1, kind: List, items: [{apiVersion: v1}]}": "items[0]",
		allow + "---\n" + allow:                                   "twice in the input",
		allow + "---\n" + ciliumText:                              "of Calico and of Cilium",
		ciliumText + "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: cilium-a, namespace: default}, spec: {podSelector: {}}}": "both become",
	} {
		if out, _, err := run(text, "convert", "-f", "-"); err == nil || errors.Is(err, report.ErrNotInOrder) || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%s: %v, want %q\n%s", text, err, want, out)
		}
	}
	if _, _, err := run("", "check"); err == nil {
		t.Error("no input is no error")
	}
	if _, _, err := run(ciliumText, "check", "-f", "-", "--cluster-cidr", "10.0.0.0/99"); err == nil {
		t.Error("a prefix that is none is no error")
	}
}

// TestLists: the items of lists are converted, of List and of lists of a kind.
func TestLists(t *testing.T) {
	item := strings.TrimSpace(strings.Replace(calicoText, "%", "", 1))
	for _, kind := range []string{"List", "NetworkPolicyList"} {
		out, _, err := run("{apiVersion: v1, kind: "+kind+", items: ["+item+"]}", "convert", "-f", "-")
		if err != nil || !strings.Contains(out, "name: calico-a") {
			t.Errorf("%s: %v\n%s", kind, err, out)
		}
	}
}

// TestServerFields: objects that are taken as they are come without what the API server added.
func TestServerFields(t *testing.T) {
	const text = `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, status: {}, metadata: {name: a, namespace: x, labels: {l: v}, uid: u,
		resourceVersion: "7", generation: 1, creationTimestamp: "2026-01-01T00:00:00Z", managedFields: []},
		spec: {podSelector: {}, egress: [{ports: [{port: 80, endPort: 12345678}]}]}}`
	out, _, err := run(text, "convert", "-f", "-")
	if !errors.Is(err, report.ErrNotInOrder) { // because of the port
		t.Error(err)
	}
	for _, gone := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "status"} {
		if strings.Contains(out, gone) {
			t.Errorf("%s is left", gone)
		}
	}
	for _, kept := range []string{"l: v", "endPort: 12345678\n", "port: 80\n"} {
		if !strings.Contains(out, kept) {
			t.Errorf("%q is missing", kept)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}
