package e2e

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// onNode runs felixctl in a node's network namespace.
func onNode(t *testing.T, n *lab.Node, args ...string) (out string, code int) {
	t.Helper()
	var both bytes.Buffer
	cmd := exec.Command(filepath.Join(buildDir, "felixctl"), args...)
	cmd.Stdout, cmd.Stderr = &both, &both
	if err := n.Namespace().Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return both.String(), cmd.ProcessState.ExitCode()
}

// TestBackendCommands asks, changes and cleans up by felixctl.
func TestBackendCommands(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	says := func(want string, wantCode int, args ...string) {
		t.Helper()
		out, code := onNode(t, n, append(args, "--socket", n.ControlSocket())...)
		if code != wantCode || !strings.Contains(out, want) {
			t.Errorf("felixctl %v: exit code %d, want %d with %q:\n%s", args, code, wantCode, want, out)
		}
	}
	says("nftables\n", 0, "backend", "get")
	says("iptables-nft has taken over from nftables", 0, "backend", "set", "iptables-nft")
	says("iptables-nft is in force already", 0, "backend", "set", "iptables-nft")
	says("iptables-nft\n", 0, "backend", "get")
	says("backend iptables-nft", 0, "status")
	says(`"ebpf" is not one of nftables, iptables, iptables-legacy, iptables-nft, openflow`, 2, "backend", "set", "ebpf")
	says("--yes", 2, "backend", "cleanup")
	says("an agent runs", 2, "backend", "cleanup", "--yes")
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	shell(t, n, "iptables-nft -A INPUT -s 192.0.2.1 -j DROP")
	eventually.True(t, "the rule in INPUT", func() bool { return firstInput(t, n, "iptables-nft") })

	// The leftovers of a crash and of an older version, of all backends at once, and objects
	// of another program.
	if err := n.KillAgent(); err != nil {
		t.Fatal(err)
	}
	says("is it running on this node", 2, "backend", "get")
	checksFirewall(t, n)
	shell(t, n, `nft add table inet felixlike
		nft add chain inet felixlike old-forward '{ type filter hook forward priority 0; policy accept; }'
		nft add table inet theirs
		ipset create flx-old-4 hash:ip
		ipset create theirs hash:ip
		for t in iptables-legacy ip6tables-legacy iptables-nft ip6tables-nft; do
			$t -t mangle -N flx-v0-old; $t -t mangle -N flx-v0-older; $t -t mangle -A flx-v0-old -j flx-v0-older
			$t -t mangle -I PREROUTING -j flx-v0-old
			$t -N KUBE-THEIRS; $t -A FORWARD -j KUBE-THEIRS
		done
		iptables-legacy -A flx-v0-old -t mangle -m set --match-set flx-old-4 src -j DROP`)
	says("nftables: nothing is left\niptables-legacy: nothing is left\niptables-nft: nothing is left\nopenflow: nothing is left\n", 0, "backend", "cleanup", "--yes", "--ovs-run-dir", n.OVSDir(), "--bridge", lab.Bridge)
	nothingLeft(t, n, "")
	if beside := shell(t, n, "nft list tables | grep felixlike-tunnel; iptables-nft -S INPUT"); beside != "-P INPUT ACCEPT\n-A INPUT -s 192.0.2.1/32 -j DROP\n" {
		t.Errorf("what was kept beside the backends: %q", beside)
	}
	if sets := shell(t, n, "ipset list -n"); sets != "theirs\n" {
		t.Errorf("ipsets: %q", sets)
	}
	if theirs := shell(t, n, "nft list tables | grep -c theirs; (iptables-legacy-save; ip6tables-legacy-save; iptables-nft-save; ip6tables-nft-save) 2>/dev/null | grep -c -- '-A FORWARD -j KUBE-THEIRS'"); theirs != "1\n4\n" {
		t.Errorf("objects of another program: %q", theirs)
	}

	// An agent that starts among the leavings of other backends removes them.
	shell(t, n, `iptables-legacy -t mangle -N flx-v0-old; iptables-legacy -t mangle -I FORWARD -j flx-v0-old; iptables-nft -N flx-v0-old`)
	if err := n.StartAgent(); err != nil {
		t.Fatal(err)
	}
	if err := n.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, n, config.NFTables)
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
}

// checksFirewall has felixctl check name a chain of nf_tables that drops the tunnel's packets, and adds the rule that it names.
func checksFirewall(t *testing.T, n *lab.Node) {
	t.Helper()
	shell(t, n, "nft add table inet wall; nft add chain inet wall in '{ type filter hook input priority 0; policy drop; }'")
	out, _ := onNode(t, n, "check", "--socket", n.ControlSocket())
	const named = "chain in of table inet wall drops packets of other nodes to UDP port 6081; add a rule: "
	_, command, found := strings.Cut(out, named)
	if !found {
		t.Fatalf("felixctl check does not say %q:\n%s", named, out)
	}
	command, _, _ = strings.Cut(command, "\n")
	shell(t, n, command)
	if out, _ := onNode(t, n, "check", "--socket", n.ControlSocket()); strings.Contains(out, "inet wall drops") {
		t.Errorf("after %s:\n%s", command, out)
	}
	shell(t, n, "nft delete table inet wall")
}
