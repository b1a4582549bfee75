package migrate

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

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
	if !errors.Is(err, report.ErrFaults) || out != "" || !strings.Contains(problems, "shop/a: spec.ingress[0]: http has no counterpart") {
		t.Errorf("convert with a loss: %v\n%s%s", err, out, problems)
	}
	out, _, err = run(allow, "check", "-f", "-")
	if err != nil || !strings.Contains(out, "networkpolicy/shop/calico-a") {
		t.Errorf("check: %v\n%s", err, out)
	}
	out, _, err = run(deny, "check", "-f", "-", "-o", "json")
	if !errors.Is(err, report.ErrFaults) || !strings.Contains(out, `"field": "spec.ingress[0]"`) {
		t.Errorf("check with a loss: %v\n%s", err, out)
	}
}

// TestAllowsMore: if a packet may be allowed that an original denies, the commands say so last and end with exit code 1,
// though every object was converted.
func TestAllowsMore(t *testing.T) {
	const np = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: k, namespace: shop}, spec: {podSelector: {}, "
	const adminText = "{apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy, metadata: {name: a}, spec: {priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}}\n"
	for name, test := range map[string]struct{ text, want string }{
		"own node, Calico":     {strings.Replace(calicoText, "ingress: [%]", "types: [Egress]", 1), "reaches its own node, on every port"},
		"own node, Cilium":     {strings.Replace(ciliumText, "ingress", "egress", 1), "The policies: default/cilium-a"},
		"own node, Kubernetes": {np + "egress: [{to: [{podSelector: {}}]}]}}", "The policies: shop/k"},
		"block":                {ciliumText + "---\n" + np + "ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}}", "under Cilium, a block matches no pods"},
		"node of the pod":      {strings.Replace(ciliumText, "ingress: [{}]", "ingressDeny: [{fromEntities: [all]}]", 1), "own node to the pod always pass"},
		"pass":                 {strings.Replace(calicoText, "%", "{action: Pass}", 1), "a Pass is converted to an Allow"},
		"pass over the tier Admin": {
			"{apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: t}, spec: {order: 1}}\n---\n" +
				strings.NewReplacer("%", "{action: Pass, source: {nets: [10.0.0.1]}}", "spec: {", "spec: {tier: t, ").Replace(calicoText) + "---\n" + adminText,
			"that of Antrea's kinds skips all tiers",
		},
		"allowed before the tier Admin": {
			"{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: g}, spec: {types: [Egress], egress: [{action: Allow}]}}\n---\n" + adminText,
			"the tier Admin does not deny",
		},
		"order": {
			strings.Replace(calicoText, "%", "{action: Deny, source: {nets: [10.0.0.1]}}, {action: Allow}", 1) +
				"---\n{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: g}, spec: {types: [Ingress]}}", "have the same order",
		},
	} {
		_, problems, err := run(test.text, "convert", "-f", "-")
		if !errors.Is(err, report.ErrFaults) || !strings.Contains(problems, allowsMore) || !strings.Contains(problems, test.want) {
			t.Errorf("%s: convert: %v\n%s", name, err, problems)
		}
		out, _, err := run(test.text, "check", "-f", "-", "-o", "json")
		if !errors.Is(err, report.ErrFaults) || !strings.Contains(out, `"allowsMore": `) {
			t.Errorf("%s: check: %v\n%s", name, err, out)
		}
	}
	for spec, want := range map[string]string{
		"":                                   "spec: required",
		", spec: x":                          "spec: wrong type",
		", spec: {ingress: [x]}":             "spec.ingress[0]: wrong type",
		", Spec: {ingress: []}":              "Spec: has no counterpart",
		", spec: {selector: \"a == 'b c'\"}": "If the API server refuses it too, it denies nothing",
	} {
		text := strings.Replace(calicoText, ", spec: {ingress: [%]}", spec, 1)
		if _, problems, err := run(text, "convert", "-f", "-"); !errors.Is(err, report.ErrFaults) || !strings.Contains(problems, allowsMore) || !strings.Contains(problems, want) {
			t.Errorf("%q: %v\n%s", spec, err, problems)
		}
	}
	const antreaText = "{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: a}, spec: {priority: 1, %}}"
	for text, more := range map[string]bool{
		"appliedTo: [{group: none}], ingress: [{action: Drop}]":                                                  true,
		"appliedTo: [{nodeSelector: {}}, {podSelector: {}}], egress: [{action: Allow}, {action: Reject}]":        true,
		"appliedTo: [{group: none}], ingress: [{action: Allow}]":                                                 false,
		"ingress: [{action: Drop, appliedTo: [{group: none}]}, {action: Allow, appliedTo: [{podSelector: {}}]}]": true,
		"ingress: [{action: Drop, appliedTo: [{podSelector: {}}]}, {action: Allow, appliedTo: [{group: none}]}]": false,
		"appliedTo: [{podSelector: {}}], ingress: [{action: Drop, bogus: 1}]":                                    true,
		"appliedTo: [{podSelector: {}}], ingress: [{action: Allow, bogus: 1}]":                                   false,
		"appliedTo: [{podSelector: {}}], ingress: [{action: Drop, from: [{fqdn: example.com}]}]":                 false, // it denies everything
		"appliedTo: [{podSelector: {}}], tier: none, ingress: [{action: Reject}]":                                false, // it denies as it did
	} {
		out, problems, err := run(strings.Replace(antreaText, "%", text, 1), "check", "-f", "-")
		if !errors.Is(err, report.ErrFaults) || strings.Contains(out, allowsMore) != more {
			t.Errorf("%s: %v, allows more: want %v\n%s%s", text, err, more, out, problems)
		}
	}
	if _, problems, err := run(np+"ingress: []}}", "convert", "-f", "-"); err != nil || problems != "" {
		t.Errorf("nothing is allowed more: %v\n%s", err, problems)
	}
}

// TestLongNames: names that become too long are shortened, and stay different.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("a", 243) + ".bbb"
	var all []string
	for _, end := range []string{"c", "d"} {
		all = append(all, strings.Replace(strings.Replace(calicoText, "%", "", 1), "name: a", "name: "+long+end, 1))
	}
	out, _, err := run(strings.Join(all, "---\n"), "convert", "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(out) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "name: "); is {
			names[name] = true
			if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
				t.Error(name, faults)
			}
		}
	}
	if len(names) != 2 {
		t.Errorf("%d names", len(names))
	}
}

// TestWrongInput: input that cannot be read as a whole is an error, and nothing of it is converted.
func TestWrongInput(t *testing.T) {
	allow := strings.Replace(calicoText, "%", "", 1)
	for text, want := range map[string]string{
		"":                      "no policy",
		"{kind: NetworkPolicy}": "kind and apiVersion are required",
		"a: [":                  "document 1",
		"hello":                 "a document must not be string",
		"[1]":                   "a document must not be array",
		"{apiVersion: v1, kind: Pod, metadata: x}":                "metadata must not be string",
		"{apiVersion: v1, kind: List, items: [{apiVersion: v1}]}": "items[0]",
		allow + "---\n" + allow:                                   "twice in the input",
		allow + "---\n" + ciliumText:                              "of Calico and of Cilium",
		ciliumText + "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: cilium-a, namespace: default}, spec: {podSelector: {}}}": "both become",
	} {
		if out, _, err := run(text, "convert", "-f", "-"); err == nil || errors.Is(err, report.ErrFaults) || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%s: %v, want %q\n%s", text, err, want, out)
		}
	}
	if _, _, err := run("", "check"); err == nil {
		t.Error("no input is no error")
	}
	if _, _, err := run(ciliumText, "check", "-f", "-", "--cluster-cidr", "10.0.0.0/99"); err == nil {
		t.Error("an invalid prefix is accepted")
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
	if !errors.Is(err, report.ErrFaults) { // because of the port
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
