package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

// leaveOther removes what the other CNI has on a node: its bridge, the routes to the pods of other
// nodes, and its configuration, which it keeps. Before, it waits until the CNI has detached all pods,
// which needs the configuration: kubelet does so after the pod is gone from the API server.
// returnToOther puts routes and configuration back.
const (
	leaveOther = `set -e
attached() { ls /var/lib/cni/results/kubelab-* >/dev/null 2>&1; }
for i in $(seq 300); do attached || break; sleep 0.2; done
if attached; then echo "pods are still attached" >&2; exit 1; fi
mv /etc/cni/net.d/10-kubelab.conflist /var/lib/
for f in 4 6; do
  ip -$f route | grep ' via ' | grep -v default | sed 's/ pref .*//' >/var/lib/routes-$f || true
  while read -r route; do ip -$f route del $route; done </var/lib/routes-$f
done
ip link del cni0 2>/dev/null || true`
	returnToOther = `set -e
mv /var/lib/10-kubelab.conflist /etc/cni/net.d/
for f in 4 6; do while read -r route; do ip -$f route add $route; done </var/lib/routes-$f; done`
)

// movedLabel is on the nodes that have moved.
const movedLabel = "felixlike=moved"

// TestMigration moves a cluster node by node from another CNI, a plain bridge, to felixlike and back,
// by the steps of docs/install/migrate.md.
func TestMigration(t *testing.T) {
	if suite() != full {
		t.Skipf("some minutes: set %s=%s", suiteVariable, full)
	}
	k := findKit(t)
	image, err := imageOf()
	if err != nil {
		t.Fatal(err)
	}
	s := newSiteOf(t, k, "nftables", kubelab.Config{CNI: "bridge", APIServerFlags: auditFlags(t, k)}, image)
	const ns = "moved"
	s.inNamespace(t, ns)
	nodes := s.Nodes()
	manifests := denyAll(ns) + sleeper(ns, "a", nodes[0]) + sleeper(ns, "b", nodes[1])
	pods := s.start(t, ns, manifests)
	pods["b"].serve(t, 80)
	expect(t, true, "with the bridge, which enforces no policy", pods["a"].flows(pods["b"], 80))
	s.kubectl(t, "-n", ns, "delete", "pod", "--all", "--wait")
	everywhere(t, s, leaveOther)
	s.before = s.snapshots(t)
	everywhere(t, s, returnToOther)
	s.start(t, ns, manifests)

	// Step 2: no node meets the selector yet.
	manifest := manifestForMoved(t, s)
	s.kubectl(t, "apply", "-f", manifest)
	ask := s.plugin(t)

	// Step 3.
	for _, node := range nodes {
		move(t, s, node, ask)
	}
	s.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=1m")
	pods = s.start(t, ns, manifests)
	pods["b"].serve(t, 80)
	expect(t, false, "with felixlike", pods["a"].flows(pods["b"], 80))
	s.kubectl(t, "-n", ns, "delete", "networkpolicy", "deny-all")
	expect(t, true, "with felixlike and without policy", pods["a"].flows(pods["b"], 80))
	// Step 4.
	t.Log(ask(t, 0, "check", "--traffic"))

	// The way back, for the whole cluster: without felixlike the nodes look as without both.
	s.kubectl(t, "-n", ns, "delete", "pod", "--all", "--wait")
	for _, node := range nodes {
		s.kubectl(t, "label", "node", node, "felixlike-")
	}
	s.uninstall(t, manifest, filepath.Join(s.kit.root, "deploy", "uninstall.yaml"))
	everywhere(t, s, returnToOther)
	s.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=1m")
	pods = s.start(t, ns, manifests)
	pods["b"].serve(t, 80)
	expect(t, true, "with the bridge again", pods["a"].flows(pods["b"], 80))
}

// everywhere runs a script on all nodes.
func everywhere(t *testing.T, s *site, script string) {
	t.Helper()
	s.onNodes(t, func(node string) error {
		_, err := s.Exec(t.Context(), node, script)
		return err
	})
}

// manifestForMoved writes the manifest for nodes with movedLabel alone.
func manifestForMoved(t *testing.T, s *site) string {
	t.Helper()
	const selector = "        kubernetes.io/os: linux\n"
	text := string(mustRead(t, filepath.Join(s.kit.root, "deploy", "felixlike.yaml")))
	if strings.Count(text, selector) != 2 {
		t.Fatal("felixlike.yaml has not two nodeSelectors")
	}
	text = strings.ReplaceAll(text, selector, selector+"        "+strings.Replace(movedLabel, "=", ": ", 1)+"\n")
	manifest := filepath.Join(t.TempDir(), "felixlike.yaml")
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return manifest
}

// move is step 3 for a node.
func move(t *testing.T, s *site, node string, ask func(t *testing.T, want int, args ...string) string) {
	t.Helper()
	s.kubectl(t, "drain", node, "--ignore-daemonsets", "--force", "--timeout=2m")
	s.exec(t, node, leaveOther)
	s.kubectl(t, "label", "node", node, movedLabel)
	until(t, readyTime, func() error {
		path, err := s.Path(node, filepath.Join("/run/felixlike", control.SocketName))
		if err != nil {
			return err
		}
		status, err := control.NewClient(path).Status(t.Context())
		if err == nil && !report.Ready(status) {
			err = errors.New("the agent is degraded")
		}
		return err
	})
	// The agent answers before the API server knows that its container runs.
	s.kubectl(t, "-n", system, "wait", "--for=condition=Ready", "pod", "-l", "app.kubernetes.io/component=agent",
		"--field-selector", "spec.nodeName="+node, "--timeout="+readyTime.String())
	ask(t, 0, "--node", node, "status")
	s.kubectl(t, "uncordon", node)
}
