package e2e

import (
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// TestEmptyChainOfPodsDenies empties the chain with the ingress policies of a pod while its agent is stopped. nftables shows
// a packet such a chain during a commit, too: the verdict map of the new generation leads to a new chain, of which the
// packet's generation has no rule.
func TestEmptyChainOfPodsDenies(t *testing.T) {
	t.Parallel()
	inLabsOf(t, []string{config.NFTables, config.IPTablesLegacy, config.IPTablesNFT}, emptyChainOfPods)
}

func emptyChainOfPods(t *testing.T, l *lab.Lab, backend string) {
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(n.AgentPID(), s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	emptied := 0
	for _, script := range emptyIsolatingChains(backend) {
		if err := n.Namespace().Do(func() error {
			out, err := exec.Command("sh", "-e", "-c", script).CombinedOutput()
			emptied += strings.Count(string(out), "emptied")
			return err
		}); err != nil {
			t.Fatalf("%s: %v", script, err)
		}
	}
	if emptied == 0 {
		t.Fatal("there is no chain with the policies of x/a")
	}
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	expect(t, l, false, "x/c", "x/a", model.TCP, 80)
	signal(syscall.SIGCONT)
	eventually.True(t, "the chain is repaired", func() bool { return through(t, l) })
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
}

// TestListWithoutRuleDenies deletes the rules that lead a pod's packets to its own node to the list of its policies, while the
// agent is stopped. nftables shows a packet such a chain during a commit, too: the pod is in the set of its new list, for which
// the packet's generation has no rule. The connection would go on.
func TestListWithoutRuleDenies(t *testing.T) {
	t.Parallel()
	l := newLabWith(t, lab.Config{Backend: config.NFTables})
	set(t, l, state(t, threeNodes, adminDenyAll))
	n := l.Node("node1")
	echoIn(t, n.Namespace(), "7778")
	reaches := func() bool {
		conn, err := traffic.Connect(l.Pod(pod("a")).Namespace(), netip.Addr{}, netip.AddrPortFrom(n.Address(model.IPv4), 7778), probeTimeout)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	if reaches() {
		t.Fatal("a pod reaches its own node although a policy denies it")
	}
	if err := syscall.Kill(n.AgentPID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	deleted := shell(t, n, "nft -a list chain inet felixlike "+rules.ChainOwnNode+" | awk '/ goto /{print $NF}' | while read handle; do "+
		"nft delete rule inet felixlike "+rules.ChainOwnNode+" handle $handle && echo deleted; done")
	if deleted == "" {
		t.Fatal("there is no rule that leads to a list")
	}
	if reaches() {
		t.Error("without a rule for its list, a pod reaches its own node")
	}
	if err := syscall.Kill(n.AgentPID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	set(t, l, state(t, threeNodes))
	eventually.True(t, "the pod reaches its own node without the policy", reaches)
}

// emptyIsolatingChains returns scripts that empty the chains with ingress policies of pods: those with the rule that
// isolates.
func emptyIsolatingChains(backend string) []string {
	if backend == config.NFTables {
		return []string{`nft list table inet felixlike | awk '/^\tchain/{c=$2} /isolated ingress/{print c}' | while read c; do nft flush chain inet felixlike "$c"; echo emptied; done`}
	}
	var all []string
	for _, tool := range []string{backend, "ip6" + strings.TrimPrefix(backend, "ip")} {
		all = append(all, tool+`-save -t mangle | awk '/isolated ingress/{print $2}' | while read c; do `+tool+` -w -t mangle -F "$c"; echo emptied; done`)
	}
	return all
}
