package cluster

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

// TestPolicyOnly installs felixlike beside another CNI, a plain bridge, as docs/use/beside.md says: policy applies to running pods and to
// new ones under each netfilter backend, and after the uninstallation the other CNI works as before.
func TestPolicyOnly(t *testing.T) {
	if suite() != full {
		t.Skipf("some minutes: set %s=%s", suiteVariable, full)
	}
	k := findKit(t)
	image, err := imageOf()
	if err != nil {
		t.Fatal(err)
	}
	s := newSiteOf(t, k, "nftables", kubelab.Config{CNI: "bridge", APIServerFlags: auditFlags(t, k)}, image)
	const ns = "beside"
	s.inNamespace(t, ns)
	nodes := s.Nodes()
	pods := s.start(t, ns, denyAll(ns)+sleeper(ns, "a", nodes[0])+sleeper(ns, "b", nodes[0])+sleeper(ns, "c", nodes[1]))
	for _, p := range pods {
		p.serve(t, 80)
	}
	expect(t, true, "with the bridge, which enforces no policy", append(pods["a"].flows(pods["b"], 80), pods["a"].flows(pods["c"], 80)...))

	dir := t.TempDir()
	relative, err := filepath.Rel(dir, filepath.Join(s.kit.root, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + relative + "/overlays/nftables]\ncomponents: [" + relative + "/components/network-policy-only]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(dir, "installed.yaml")
	if err := os.WriteFile(installed, []byte(s.kubectl(t, "kustomize", "--load-restrictor=LoadRestrictionsNone", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	s.kubectl(t, "apply", "-f", installed)
	s.kubectl(t, "-n", system, "rollout", "status", daemonSet, "--timeout=5m")
	t.Logf("all agents ready %s after kubectl apply", since(start))
	ask := s.plugin(t)
	judged := func(when string) {
		t.Helper()
		for _, to := range []string{"b", "c"} {
			expect(t, false, when+", from a to "+to, pods["a"].flows(pods[to], 80))
		}
	}
	judged("pods that ran before")
	for _, backend := range []string{"iptables-nft", "iptables-legacy", "nftables"} {
		ask(t, 0, "backend", "set", backend)
		judged("under " + backend)
	}
	more := s.start(t, ns, sleeper(ns, "d", nodes[0])+sleeper(ns, "e", nodes[1]))
	for _, name := range []string{"d", "e"} {
		pods[name] = more[name]
		pods[name].serve(t, 80)
		expect(t, false, "to the new pod "+name, pods["a"].flows(pods[name], 80))
	}
	s.kubectl(t, "-n", ns, "delete", "networkpolicy", "deny-all")
	for _, to := range []string{"b", "c", "d", "e"} {
		expect(t, true, "without policy, from a to "+to, pods["a"].flows(pods[to], 80))
	}
	t.Log(ask(t, 0, "status"))
	t.Log(ask(t, 0, "check", "--traffic"))
	testChosenSpecs(t, s)
	testSmoke(t, s)

	s.kubectl(t, "-n", ns, "delete", "pod", "--all", "--wait")
	s.clean(t, installed, filepath.Join(s.kit.root, "deploy", "uninstall.yaml"))
	for _, node := range nodes {
		// The rest is the other CNI's.
		left := s.exec(t, node, `nft list tables | grep felixlike; ls -d /run/felixlike /var/lib/felixlike /etc/cni/net.d/*felixlike* /opt/cni/bin/felixlike-cni 2>/dev/null; iptables-legacy-save | grep flx; ipset list -n | grep flx; true`)
		if left != "" {
			t.Errorf("left on %s: %s", node, left)
		}
	}
	pods = s.start(t, ns, denyAll(ns)+sleeper(ns, "a", nodes[0])+sleeper(ns, "c", nodes[1]))
	pods["c"].serve(t, 80)
	expect(t, true, "with the bridge alone again", pods["a"].flows(pods["c"], 80))
}
