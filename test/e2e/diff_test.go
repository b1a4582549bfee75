package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
)

// oneMorePod is x/e, which is an x/c to policy.
const oneMorePod = `
{kind: Pod, metadata: {namespace: x, name: e, labels: {pod: c}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}]}]}}
`

const fromB = `
{kind: NetworkPolicy, metadata: {namespace: x, name: from-b}, spec: {podSelector: {matchLabels: {pod: a}},
  ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}], ports: [{port: 80}]}]}}
`

// TestDiffWalk saves a node, adds a pod, saves, adds a policy, saves and compares,
// under every backend. The diff names pods and policies, and shows the changed verdicts
// on packets, the proof the same ones. At every step the node has its desired state, and all
// backends would judge alike, for all packets.
func TestDiffWalk(t *testing.T) {
	t.Parallel()
	needLab(t)
	name := fmt.Sprintf("e2e-%d-diff", os.Getpid())
	run := labNamed(t, name)
	t.Cleanup(func() { run(0, "down", "--ignore-not-found") })
	objects, pod, policy := file(t, threeNodes+"---"+onlyFromC), file(t, oneMorePod), file(t, fromB)
	run(0, "up", "-f", objects)
	snapshots := t.TempDir()
	ask := func(want int, args ...string) string {
		t.Helper()
		out, errs, code := felixctl(t, append(args, "--snapshots", snapshots)...)
		if code != want {
			t.Fatalf("felixctl %v: exit code %d, want %d\n%s%s", args, code, want, out, errs)
		}
		return out
	}
	node := []string{"--lab", name, "--node", "node1"}
	for _, backend := range []string{"nftables", "iptables-legacy", "iptables-nft", "openflow"} {
		if _, errs, code := felixctl(t, "backend", "set", backend, "--socket", labs.ControlSocket("", name, "node1")); code != 0 {
			t.Fatalf("%s: %s", backend, errs)
		}
		run(0, "apply", "--prune", "-f", objects)
		save := func(snapshot string) {
			ask(0, append([]string{"snapshot", "save", snapshot, "--replace"}, node...)...)
			ask(0, append([]string{"diff", "live", "wanted"}, node...)...)
			ask(0, append([]string{"prove", "live"}, node...)...)
		}
		save("before")
		run(0, "apply", "-f", pod)
		save("with-pod")
		run(0, "apply", "-f", policy)
		save("with-policy")
		if out := ask(1, "diff", "before", "with-pod"); !strings.Contains(out, "x/e") {
			t.Errorf("%s: the pod is not named\n%s", backend, out)
		}
		if out := ask(1, "diff", "with-pod", "with-policy"); !strings.Contains(out, "x/from-b") || strings.Contains(out, "x/e") {
			t.Errorf("%s: the policy is not named, or too much is\n%s", backend, out)
		}
		ask(1, "diff", "with-pod", "with-policy", "--view", "text")
		out := ask(1, "diff", "with-pod", "with-policy", "--view", "verdicts")
		if !strings.Contains(out, "x/b   x/a  IPv4, IPv6  80/tcp  denied  allowed") || strings.Count(out, "denied  allowed") != 1 {
			t.Errorf("%s: %s", backend, out)
		}
		if out = ask(1, "prove", "with-pod", "with-policy"); strings.Count(out, "x/b -> x/a tcp 80: A dropped, B ") != 1 || strings.Count(out, ": A ") != 1 {
			t.Errorf("%s: %s", backend, out)
		}
		for _, other := range []string{"nftables", "iptables", "openflow"} {
			ask(0, append([]string{"diff", "live", "backend:" + other, "--view", "verdicts"}, node...)...)
			want := 0
			if (backend == "openflow") != (other == "openflow") {
				want = 3 // later packets are not compared over the switch
			}
			ask(want, append([]string{"prove", "live", "backend:" + other}, node...)...)
			// Without more flags, states of two backends are compared by verdicts.
			if out := ask(0, append([]string{"diff", "live", "backend:" + other}, node...)...); !strings.Contains(out, "no verdict differs") && !strings.Contains(out, "no difference") {
				t.Errorf("%s and %s:\n%s", backend, other, out)
			}
		}
	}
}
