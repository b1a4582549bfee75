package lab

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/model"
)

const cluster = `
# a comment
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {addresses: [{type: InternalIP, address: 192.168.50.1}]}
spec: {podCIDR: 10.77.0.0/24}
---
apiVersion: v1
kind: Pod
metadata: {namespace: x, name: b}
spec:
  nodeName: n2
  containers: [{name: c, ports: [{containerPort: 80}, {containerPort: 53, protocol: UDP}]}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: x, name: a}
spec: {containers: [], nodeName: n2}
status: {podIP: 10.77.0.11}
`

func parsed(t *testing.T, text string) State {
	t.Helper()
	s, err := Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCompleteFillsInAndKeeps(t *testing.T) {
	s := parsed(t, cluster)
	if err := s.complete(&State{}); err != nil {
		t.Fatal(err)
	}
	p, err := newPlan(&s)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range p.nodes {
		var gateways []netip.Addr
		for _, g := range n.Gateways {
			gateways = append(gateways, g.Addr())
		}
		got[n.Name] = joinAddrs(n.Addresses) + " gw " + joinAddrs(gateways) + " " + n.PodCIDRs[0].String() + "," + n.PodCIDRs[1].String()
	}
	for id, pod := range p.pods {
		got[id.String()] = pod.Node + " " + joinAddrs(pod.Addresses)
	}
	want := map[string]string{
		"n1":  "192.168.50.11,fd00:10::c0a8:320b gw 192.168.50.254,fd00:10::c0a8:32fe 10.10.0.0/24,fd00:10::a0a:0/120",
		"n2":  "192.168.50.1,fd00:10::c0a8:3201 gw 192.168.50.254,fd00:10::c0a8:32fe 10.77.0.0/24,fd00:10::a4d:0/120",
		"x/a": "n2 10.77.0.11,fd00:10::a4d:b",
		"x/b": "n2 10.77.0.10,fd00:10::a4d:a",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s.Namespaces[0].Labels[corev1.LabelMetadataName] != "x" {
		t.Errorf("namespace of the pods: %+v", s.Namespaces)
	}
	ports := p.pods[model.PodID{Namespace: "x", Name: "b"}].Ports
	if !slices.Equal(ports, []port{{model.TCP, 80}, {model.UDP, 53}}) {
		t.Errorf("ports %v", ports)
	}

	again := parsed(t, strings.Replace(cluster, "podIP: 10.77.0.11", "podIP: 10.77.0.10", 1))
	if err := again.complete(&s); err != nil {
		t.Fatal(err)
	}
	if _, err := newPlan(&again); err == nil || !strings.Contains(err.Error(), "10.77.0.10") {
		t.Errorf("two pods with one address: %v", err)
	}
}

func TestPlanRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"kind: Pod\nmetadata: {namespace: x, name: a}\nspec: {nodeName: n9, containers: []}":          `no node "n9"`,
		"kind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 1.2.3}]}": "1.2.3",
	} {
		s := parsed(t, text)
		err := s.complete(&State{})
		if err == nil {
			_, err = newPlan(&s)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %q in it", text, err, want)
		}
	}
}

// manyKinds has a List, the list of one kind as an API server writes it, and kinds that a lab does not use.
const manyKinds = `
{kind: Namespace, metadata: {name: shop}}
---
kind: List
items:
- {kind: Pod, metadata: {namespace: shop, name: web}}
- {kind: Service, metadata: {namespace: shop, name: web}}
---
{kind: ClusterRole, metadata: {name: reader}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicyList, items: [{metadata: {namespace: shop, name: closed}, spec: {podSelector: {}}}]}
`

func TestLoadPassesOverOtherKinds(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/objects.yaml" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, manyKinds)
	}))
	defer server.Close()
	s, ignored, err := Load(t.Context(), server.URL+"/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"Service shop/web", "ClusterRole reader"}; !slices.Equal(ignored, want) {
		t.Errorf("ignored %q, want %q", ignored, want)
	}
	if len(s.Policies) != 1 || s.Policies[0].Name != "closed" {
		t.Errorf("policies %v", s.Policies)
	}
	if len(s.Namespaces) != 1 || len(s.Pods) != 1 || s.Pods[0].Name != "web" {
		t.Errorf("namespaces %v, pods %v", s.Namespaces, s.Pods)
	}
	if _, _, err := Load(t.Context(), server.URL+"/nothing.yaml"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a URL that is not there: %v", err)
	}
}

func TestParseIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		"kind: Gateway\nmetadata: {name: a}":                  `kind "Gateway"`,
		"kind: Pod\nmetadata: {name: a}\nspec: {nodeNaem: b}": "nodeNaem",
		"metadata: {name: a}":                                 "no kind",
		"kind: Pod":                                           "metadata.name",
	} {
		if _, err := Parse("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f.yaml") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestManifestsAreWrittenByDifference(t *testing.T) {
	dir := manifestsDir(filepath.Join(t.TempDir(), "m"))
	first := map[string][]byte{"a.yaml": []byte("a"), "b.yaml": []byte("b")}
	if err := dir.write(first); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(string(dir), "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.write(map[string][]byte{"a.yaml": []byte("a"), "c.yaml": []byte("c")}); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(filepath.Join(string(dir), "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("an unchanged file was written again")
	}
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"a.yaml", "c.yaml"}) {
		t.Errorf("files %v", names)
	}
}

func TestNamesAreBoundedAndDistinct(t *testing.T) {
	long := strings.Repeat("a-long-name.", 10)
	seen := map[string]bool{}
	for _, pod := range []model.PodID{
		{Namespace: "x", Name: "y-z"}, {Namespace: "x-y", Name: "z"}, {Namespace: long, Name: "a"}, {Namespace: long, Name: "b"}, {Namespace: "x", Name: "a"},
	} {
		name := podNamespace("lab", pod)
		if seen[name] || len(name) > 60 {
			t.Errorf("%s: %s", pod, name)
		}
		seen[name] = true
	}
	if got := nodeNamespace("lab", "node1"); got != "flx-lab-node1" {
		t.Errorf("node's namespace %s", got)
	}
	if got := fabricPort(long); len(got) > 15 {
		t.Errorf("port %s", got)
	}
	for _, name := range []string{"", "-a", "A", "a/b", "..", strings.Repeat("a", 25)} {
		if checkName(name) == nil {
			t.Errorf("lab name %q was accepted", name)
		}
	}
}

func joinAddrs(addrs []netip.Addr) string {
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}
