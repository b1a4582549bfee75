package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterctl "github.com/felixlike/felixlike/cmd/felixctl/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

// testPlugin asks the agents by kubectl felixlike, as operators do: the answer
// is that of the agent's pod on the named node.
func testPlugin(t *testing.T, s *site) {
	const ns = "asked"
	s.inNamespace(t, ns)
	here, there := s.Nodes()[0], s.Nodes()[1]
	pods := s.start(t, ns, denyAll(ns)+sleeper(ns, "a", here)+sleeper(ns, "b", there))
	ask := s.plugin(t)
	for _, node := range s.Nodes() {
		var status control.Status
		out := ask(t, 0, "--node", node, "status", "-o", "json")
		if err := json.Unmarshal([]byte(out), &status); err != nil || status.Node != node || !slices.Contains(kinds(s.backend), status.Backend) {
			t.Errorf("%s: %v\n%s", node, err, out)
		}
	}
	if out := ask(t, 0, "--node", here, "check"); !strings.Contains(out, "all that it knows is in force") {
		t.Errorf("check:\n%s", out)
	}
	if out := ask(t, 1, "--node", here, "trace", "--from", ns+"/a", "--to", ns+"/b", "--port", "80/tcp"); !strings.Contains(out, ns+"/deny-all") {
		t.Errorf("trace:\n%s", out)
	}
	if out := ask(t, 1, "trace", "--from", ns+"/a", "--to", ns+"/b", "--port", "80/tcp"); !strings.Contains(out, ns+"/deny-all") || strings.Contains(out, "note:") {
		t.Errorf("trace by both nodes:\n%s", out)
	}
	if out := ask(t, 1, "--node", here, "preview", "--delete", "networkpolicy/"+ns+"/deny-all"); !strings.Contains(out, "denied") || !strings.Contains(out, ns+"/a") {
		t.Errorf("preview:\n%s", out)
	}
	testAllNodes(t, s, ask)
	testTraffic(t, s, ask)
	// The test sends packets while felixctl drops follows.
	followed := make(chan string, 1)
	go func() {
		followed <- ask(t, 1, "--node", here, "drops", "--namespace", ns, "--for", "3s", "-o", "json")
	}()
	for {
		expect(t, false, "under deny-all", pods["a"].flows(pods["b"], 80))
		select {
		case out := <-followed:
			expectDrops(t, out, ns+"/a")
			return
		default:
		}
	}
}

// testAllNodes asks all nodes at once.
func testAllNodes(t *testing.T, s *site, ask func(t *testing.T, want int, args ...string) string) {
	expectAll := func(out string, texts ...string) {
		t.Helper()
		for _, text := range append(texts, s.Nodes()...) {
			if !strings.Contains(out, text) {
				t.Errorf("%q is missing in\n%s", text, out)
			}
		}
	}
	expectAll(ask(t, 0, "status", "--wait", "30s"), "2 nodes, 2 ready")
	expectAll(ask(t, 0, "version"), "yes")
	expectAll(ask(t, 0, "backend", "get"))
	expectAll(ask(t, 0, "check", "-o", "json"), `"level": "ok"`)
	if out := ask(t, 0, "diff", "live", "wanted"); !strings.Contains(out, "2 nodes: 0 differ") {
		t.Errorf("diff:\n%s", out)
	}
	if out := ask(t, 0, "policies", "--unused"); !strings.Contains(out, "rules on 2 nodes") {
		t.Errorf("policies:\n%s", out)
	}
	page := filepath.Join(t.TempDir(), "report.html")
	ask(t, 0, "ui", "--once", "--out", page)
	text, err := os.ReadFile(page)
	if expectAll(string(text), "2 of 2 nodes ready", "deny-all", "SHA-256"); err != nil {
		t.Error(err)
	}
	archive := filepath.Join(t.TempDir(), "cluster.tar.gz")
	if out := ask(t, 0, "diags", "--file", archive); !strings.Contains(out, "of 2 nodes") {
		t.Errorf("diags:\n%s", out)
	}
	if list, err := exec.CommandContext(t.Context(), "tar", "-tzf", archive).Output(); err == nil {
		for _, node := range s.Nodes() {
			expectAll(string(list), "cluster/"+node+"/status.json", "cluster/"+node+"/logs.txt", "cluster/"+node+"/ovs-logs.txt", "cluster/pods.txt")
		}
	} else {
		t.Error(err)
	}
	// The backend in force is set again: no node changes, and the setting in the ConfigMap stays.
	backend := strings.TrimSpace(ask(t, 0, "--node", s.Nodes()[0], "backend", "get"))
	expectAll(ask(t, 0, "backend", "set", backend, "--temporary"), backend+" (was "+backend+")")
}

// deniesTraffic denies what check --traffic expects to be open, to the servers.
const deniesTraffic = `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: denies-traffic}
spec:
  tier: Admin
  priority: 1
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {felixlike.io/traffic: server}}}}
  ingress: [{action: Deny, from: [{namespaces: {}}]}]
`

// testTraffic sends packets on all paths, without a policy of its own and with one that denies
// them. These clusters have no DNS server, so that path is no failure.
func testTraffic(t *testing.T, s *site, ask func(t *testing.T, want int, args ...string) string) {
	closed := func(code int, args ...string) map[string]int {
		t.Helper()
		var paths []struct {
			Path, Detail string
			OK           bool
		}
		out := ask(t, code, append(args, "check", "--traffic", "-o", "json")...)
		if err := json.Unmarshal([]byte(out), &paths); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		all := map[string]int{}
		for _, p := range paths {
			all[p.Path] += 0
			if !p.OK {
				t.Logf("%s: %s", p.Path, p.Detail)
				all[p.Path]++
			}
		}
		if left := s.kubectl(t, "get", "namespaces", "-o", "name"); strings.Contains(left, "felixlike-traffic") {
			t.Errorf("a namespace is left:\n%s", left)
		}
		return all
	}
	want := map[string]int{"same node": 0, "cross node": 0, "Service": 0, "NodePort": 0, "DNS": 0, "outside": 0, "denied": 0}
	if got := closed(0); !maps.Equal(got, want) {
		t.Errorf("paths that are not as expected: %v, want %v", got, want)
	}
	s.apply(t, deniesTraffic)
	defer s.kubectl(t, "delete", "clusternetworkpolicy.policy.networking.k8s.io/denies-traffic")
	got := closed(1, "--node", s.Nodes()[0])
	if got["same node"] == 0 || got["Service"] == 0 || got["outside"] != 0 || got["denied"] != 0 {
		t.Errorf("paths that are not as expected under a policy that denies them: %v", got)
	}
}

// expectDrops fails the test unless the lines report denied packets of a pod,
// by TCP and UDP.
func expectDrops(t *testing.T, lines, from string) {
	t.Helper()
	seen := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(lines)); ; {
		var drop control.Drop
		if err := d.Decode(&drop); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, lines)
		}
		if drop.From.Pod == from && drop.Direction == "egress" && slices.Contains(drop.Policies, "networkpolicy/asked/deny-all") {
			seen[drop.Protocol] = true
		}
	}
	if !seen["tcp"] || !seen["udp"] {
		t.Errorf("drops:\n%s", lines)
	}
}

// plugin builds felixctl as a plugin of kubectl, and returns a function that runs it
// and fails the test on another exit code than wanted.
func (s *site) plugin(t *testing.T) func(t *testing.T, want int, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, clusterctl.PluginName), "./cmd/felixctl")
	build.Dir = s.kit.root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	return s.pluginIn(dir)
}

// pluginIn returns a function that runs the plugin in a folder.
func (s *site) pluginIn(dir string) func(t *testing.T, want int, args ...string) string {
	path := "PATH=" + strings.Join([]string{dir, filepath.Dir(s.Kit().Bin("kubectl")), os.Getenv("PATH")}, string(os.PathListSeparator))
	return func(t *testing.T, want int, args ...string) string {
		t.Helper()
		// kubectl finds its plugins in the PATH.
		cmd := exec.CommandContext(t.Context(), "ip", append([]string{
			"netns", "exec", kubelab.ControlPlane, "env", path, "KUBECONFIG=" + s.Kubeconfig(), "kubectl", "felixlike",
		}, args...)...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != want {
			t.Errorf("kubectl felixlike %v: %v, want exit code %d\n%s%s", args, err, want, out.String(), errs.String())
		}
		return out.String()
	}
}
