package manifests

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/datastore"
)

// TestObjectErrors: one file with an error beside a good one, from the start.
func TestObjectErrors(t *testing.T) {
	tests := []struct {
		name, file, text string
		problem          []string
		closed           bool
	}{
		{
			"unknown field", "", strings.Replace(policyYAML("x", "p", "a"), "podSelector", "podSelectr", 1),
			[]string{"bad.yaml: networkpolicy/x/p: spec.podSelectr: unknown field; closed: every pod of the namespace is isolated"},
			true,
		},
		{
			"unknown field deep inside", "", policyYAML("x", "p", "a") + "  ingress:\n  - from:\n    - podSelectr: {}\n",
			[]string{"networkpolicy/x/p: spec.ingress[0].from[0].podSelectr: unknown field; closed: the pods it selects are isolated"},
			true,
		},
		{
			"wrong type", "", policyYAML("x", "p", "a") + "  ingress: {from: []}\n",
			[]string{"networkpolicy/x/p: spec.ingress: wrong type: got object, want a list; closed"},
			true,
		},
		{
			"wrong type of a port", "", policyYAML("x", "p", "a") + "  ingress: [{ports: [{port: 80, endPort: many}]}]\n",
			[]string{"wrong type: got string, want an integer (int32)"},
			true,
		},
		{"field names are case sensitive", "", policyYAML("x", "p", "a") + "  Ingress: []\n", []string{"spec.Ingress: unknown field"}, true},
		{"two errors", "", policyYAML("x", "p", "a") + "  foo: 1\n  bar: 2\n", []string{"spec.bar", "spec.foo"}, true},
		{
			"wrong apiVersion", "", strings.Replace(policyYAML("x", "p", "a"), "networking.k8s.io/v1", "extensions/v1beta1", 1),
			[]string{`networkpolicy/x/p: apiVersion: "extensions/v1beta1": must be networking.k8s.io/v1; closed`},
			true,
		},
		{
			"key given twice", "", policyYAML("x", "p", "a") + "  podSelector: {}\n",
			[]string{`networkpolicy/x/p: line 6: key "podSelector" already set in map; closed: every pod`},
			true,
		},
		{
			"key given twice in JSON", "bad.json", `{"apiVersion":"v1","kind":"Pod","kind":"Pod","metadata":{"name":"p"}}`,
			[]string{"pod/default/p: kind: duplicate field; left out"},
			false,
		},
		{"pod", "", podYAML("x", "p") + "spec: {container: []}\n", []string{"pod/x/p: spec.container: unknown field; left out"}, false},
		{
			"unknown kind", "", strings.Replace(policyYAML("x", "p", "a"), "NetworkPolicy", "NetworkPolcy", 1),
			[]string{`networkpolcy/x/p: kind: unknown kind "NetworkPolcy": ignored`},
			false,
		},
		{"kind not used", "", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n", []string{"deployment/d: ignored: kind not used"}, false},
		{"no kind", "", "apiVersion: v1\n", []string{"document 1 (line 1): kind: required"}, false},
		{"no field of an object", "", "a: b\n", []string{"document 1 (line 1): not an object of Kubernetes: it has no apiVersion, kind, metadata, spec or items"}, false},
		{"kind of another type", "", "kind: 7\n", []string{"document 1 (line 1): kind: required, and must be a string"}, false},
		{"no name", "", "apiVersion: v1\nkind: Pod\n", []string{"pod/document 1 (line 1): metadata.name: required"}, false},
		{"invalid name", "", podYAML("x", "Not_a_name"), []string{"pod/x/Not_a_name: metadata.name: a lowercase RFC 1123 subdomain"}, false},
		{"name of another type", "", podYAML("x", "7"), []string{"metadata.name: must be a string"}, false},
		{"namespace that YAML reads as true", "", podYAML("y", "p"), []string{"metadata.namespace: must be a string (unquoted y, n, yes"}, false},
		{
			"label that YAML reads as true", "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x, labels: {a: on}}\n",
			[]string{"want a string (unquoted y, n, yes"},
			false,
		},
		{"invalid namespace", "", podYAML("x.y", "p"), []string{"pod/x.y/p: metadata.namespace: "}, false},
		{"node in a namespace", "", "apiVersion: v1\nkind: Node\nmetadata: {name: n1, namespace: x}\n", []string{"node/x/n1: metadata.namespace: a Node has no namespace"}, false},
		{"namespace with a dot", "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a.b}\n", []string{"namespace/a.b: metadata.name: "}, false},
		{"not an object", "", "just text\n", []string{"document 1 (line 1): not an object"}, false},
		{"not JSON", "bad.json", "{\n\"kind\": \n!", []string{"bad.json: document 1 (line 3): line 3: invalid character '!'"}, false},
		{
			"list item", "", "apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n  apiVersion: v1\n  metadata: {}\n",
			[]string{"pod/document 1 (line 1) items[0]: metadata.name: required"},
			false,
		},
		{"list inside a list", "", "apiVersion: v1\nkind: List\nitems:\n- kind: List\n", []string{"a List inside a List is not supported"}, false},
		{"list of another version", "", "apiVersion: networking.k8s.io/v2\nkind: NetworkPolicyList\n", []string{`"networking.k8s.io/v2": must be networking.k8s.io/v1`}, false},
		{"unknown field of a list", "", "apiVersion: v1\nkind: List\nitem: []\n", []string{"list/document 1 (line 1): item: unknown field"}, false},
		{"line of a later document", "", podYAML("x", "good2") + "---\na: b\n c: d\n", []string{"document 2 (line 5): line 7: "}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, "good.yaml", podYAML("good", "pod"))
			file := test.file
			if file == "" {
				file = "bad.yaml"
			}
			writeFile(t, dir, file, test.text)
			h := start(t, dir, time.Hour)
			h.sync()
			h.wantProblems(test.problem...)
			if h.object("pod/good/pod") == nil {
				t.Error("the good pod is not in force")
			}
			_, closed := h.object("networkpolicy/x/p").(datastore.NetworkPolicyClosed)
			if closed != test.closed {
				t.Errorf("closed = %v; want %v", closed, test.closed)
			}
			if h.object("pod/x/p") != nil || h.object("pod/default/p") != nil {
				t.Error("the bad pod is in force")
			}
		})
	}
}

func TestClosedPolicySelector(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	tests := []struct {
		name, text string
		want       *metav1.LabelSelector
	}{
		{"readable", policyYAML("x", "p", "a") + "  nonsense: 1\n", selector},
		{"unknown field in it", strings.Replace(policyYAML("x", "p", "a"), "matchLabels", "matchLabel", 1), nil},
		{"unknown operator", strings.Replace(policyYAML("x", "p", "a"), "{matchLabels: {app: a}}",
			"{matchExpressions: [{key: app, operator: Is, values: [a]}]}", 1) + "  nonsense: 1\n", nil},
		{"given twice", policyYAML("x", "p", "a") + "  podSelector: {}\n", nil},
		{"no spec", "apiVersion: v7\nkind: NetworkPolicy\nmetadata: {name: p, namespace: x}\n", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, "a.yaml", test.text)
			h := start(t, dir, time.Hour)
			h.sync()
			want := datastore.NetworkPolicyClosed{Namespace: "x", Name: "p", PodSelector: test.want}
			if diff := cmp.Diff(any(want), h.object("networkpolicy/x/p")); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
			h.wantNames("namespace/x", "networkpolicy/x/p (closed)")
		})
	}
}

// TestNamespaceOfObjects: a namespace that has objects and no object of its own has the label of its name.
func TestNamespaceOfObjects(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", podYAML("x", "a"))
	h := start(t, dir, time.Hour)
	h.sync()
	h.wantNames("namespace/x", "pod/x/a")
	if got := h.object("namespace/x").(*corev1.Namespace).Labels; len(got) != 1 || got[corev1.LabelMetadataName] != "x" {
		t.Errorf("labels %v; want that of the name", got)
	}
}

func TestLastGoodVersionStays(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", policyYAML("x", "p", "a")+"---\n"+podYAML("x", "a"))
	h := start(t, dir, time.Hour)
	h.sync()
	broken := policyYAML("x", "p", "b") + "  nonsense: 1\n"
	h.write("a.yaml", broken+"---\n"+podYAML("x", "a")+"---\n"+podYAML("x", "b"))
	h.sync()
	h.wantNames("namespace/x", "pod/x/a", "pod/x/b", "networkpolicy/x/p")
	h.wantProblems("networkpolicy/x/p: spec.nonsense: unknown field; the last good version stays in force")
	if got := h.policy("x/p").Spec.PodSelector.MatchLabels["app"]; got != "a" {
		t.Errorf("selector app=%s; want the last good one's", got)
	}
	// Even if the broken one is in another file by now.
	h.remove("a.yaml")
	h.write("b.yaml", broken)
	h.sync()
	h.wantNames("namespace/x", "networkpolicy/x/p")
	h.write("b.yaml", policyYAML("x", "p", "b"))
	h.sync()
	h.wantProblems()
	if got := h.policy("x/p").Spec.PodSelector.MatchLabels["app"]; got != "b" {
		t.Errorf("selector app=%s; want the new one's", got)
	}
	// Once removed, there is no good version to go back to.
	h.remove("b.yaml")
	h.sync()
	h.write("b.yaml", broken)
	h.sync()
	h.wantNames("namespace/x", "networkpolicy/x/p (closed)")
	h.write("b.yaml", policyYAML("x", "p", "c"))
	h.sync()
	h.wantNames("namespace/x", "networkpolicy/x/p")
}

func TestRenamedIntoNonsenseKeepsThePolicy(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", policyYAML("x", "p", "a"))
	h := start(t, dir, time.Hour)
	h.sync()
	h.write("a.yaml", policyYAML("x", "P!", "a"))
	h.sync()
	h.wantNames("namespace/x", "networkpolicy/x/p")
	h.wantProblems("metadata.name", "networkpolicy/x/p: not found in the file")
}

func TestEventsNameTheirFile(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", podYAML("x", "a"))
	h := start(t, dir, time.Hour)
	h.sync()
	sources := map[string]string{}
	for _, e := range h.batches[0].Events {
		switch e := e.(type) {
		case datastore.PodSet:
			sources["pod"] = e.Source
		case datastore.NamespaceSet:
			sources["namespace"] = e.Source
		}
	}
	if diff := cmp.Diff(map[string]string{"pod": "a.yaml", "namespace": ""}, sources); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
}

func TestFirstFileWins(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "b.yaml", policyYAML("x", "p", "b"))
	h := start(t, dir, time.Hour)
	h.sync()
	h.write("c.yaml", policyYAML("x", "p", "c"))
	h.sync()
	h.wantProblems("c.yaml: networkpolicy/x/p: also defined in b.yaml: that one is in force")
	h.write("a.yaml", policyYAML("x", "p", "a"))
	h.sync()
	h.wantProblems("b.yaml: networkpolicy/x/p: also defined in a.yaml", "c.yaml: networkpolicy/x/p: also defined in a.yaml")
	if got := h.policy("x/p").Spec.PodSelector.MatchLabels["app"]; got != "a" {
		t.Errorf("selector app=%s; want that of a.yaml", got)
	}
	h.remove("a.yaml")
	h.remove("b.yaml")
	h.sync()
	h.wantProblems()
	if got := h.policy("x/p").Spec.PodSelector.MatchLabels["app"]; got != "c" {
		t.Errorf("selector app=%s; want that of c.yaml", got)
	}
	h.write("c.yaml", policyYAML("x", "p", "c")+"---\n"+policyYAML("x", "p", "d"))
	h.sync()
	h.wantProblems("c.yaml: networkpolicy/x/p: defined twice in this file: the first is in force")
}

func TestNamespaces(t *testing.T) {
	label := func(h *harness, name string) map[string]string {
		namespace, ok := h.object("namespace/" + name).(*corev1.Namespace)
		if !ok {
			t.Fatalf("namespace %s is %T", name, h.object("namespace/"+name))
		}
		return namespace.Labels
	}
	dir := t.TempDir()
	writeFile(t, dir, "pod.yaml", podYAML("x", "a"))
	h := start(t, dir, time.Hour)
	h.sync()
	made := map[string]string{corev1.LabelMetadataName: "x"}
	if diff := cmp.Diff(made, label(h, "x")); diff != "" {
		t.Errorf("labels of the made namespace (-want +got):\n%s", diff)
	}
	// A declaration that cannot be read does not count as a last good version.
	h.write("ns.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x, labels: {team: 7}}\n")
	h.sync()
	h.wantProblems("ns.yaml: namespace/x: metadata.labels: wrong type: got number, want a string; left out")
	if diff := cmp.Diff(made, label(h, "x")); diff != "" {
		t.Errorf("labels beside an unreadable declaration (-want +got):\n%s", diff)
	}
	h.write("ns.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x, labels: {team: a, kubernetes.io/metadata.name: lie}}\n")
	h.sync()
	if diff := cmp.Diff(map[string]string{corev1.LabelMetadataName: "x", "team": "a"}, label(h, "x")); diff != "" {
		t.Errorf("labels of the declared namespace (-want +got):\n%s", diff)
	}
	h.remove("ns.yaml")
	h.sync()
	if diff := cmp.Diff(made, label(h, "x")); diff != "" {
		t.Errorf("labels after the declaration (-want +got):\n%s", diff)
	}
	h.remove("pod.yaml")
	h.sync()
	h.wantNames()
}

func TestDefaults(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: in}
spec:
  podSelector: {}
  ingress: [{ports: [{port: 80}, {port: 53, protocol: UDP}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: both}
spec: {podSelector: {}, egress: [{ports: [{}]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: egress}
spec: {podSelector: {}, policyTypes: [Egress]}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  initContainers: [{name: i, ports: [{containerPort: 1}]}]
  containers: [{name: c, ports: [{containerPort: 2}, {containerPort: 3, protocol: SCTP}]}]
status: {podIP: 10.0.0.1}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: 10.1.0.0/24}
`)
	h := start(t, dir, time.Hour)
	h.sync()
	h.wantProblems()
	in, both := h.policy("default/in"), h.policy("default/both")
	if got := *in.Spec.Ingress[0].Ports[0].Protocol + *in.Spec.Ingress[0].Ports[1].Protocol + *both.Spec.Egress[0].Ports[0].Protocol; got != "TCPUDPTCP" {
		t.Errorf("protocols %s", got)
	}
	ingress, egress := networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	for name, want := range map[string][]networkingv1.PolicyType{"in": {ingress}, "both": {ingress, egress}, "egress": {egress}} {
		if diff := cmp.Diff(want, h.policy("default/"+name).Spec.PolicyTypes); diff != "" {
			t.Errorf("policyTypes of %s (-want +got):\n%s", name, diff)
		}
	}
	pod := h.pod("default/a")
	if got := pod.Spec.InitContainers[0].Ports[0].Protocol + pod.Spec.Containers[0].Ports[0].Protocol + pod.Spec.Containers[0].Ports[1].Protocol; got != "TCPTCPSCTP" {
		t.Errorf("protocols of the pod %s", got)
	}
	if len(pod.Status.PodIPs) != 1 || pod.Status.PodIPs[0].IP != "10.0.0.1" {
		t.Errorf("podIPs %v", pod.Status.PodIPs)
	}
	if node := h.object("node/n1").(*corev1.Node); len(node.Spec.PodCIDRs) != 1 {
		t.Errorf("podCIDRs %v", node.Spec.PodCIDRs)
	}
}
