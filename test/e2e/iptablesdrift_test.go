package e2e

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/tablestest"
)

// oursInIPTables lists the state of iptables and ipset on a node, without counters.
func oursInIPTables(t *testing.T, n *lab.Node, backend string) string {
	t.Helper()
	var b strings.Builder
	for _, save := range []string{backend + "-save", "ip6" + strings.TrimPrefix(backend, "ip") + "-save"} {
		b.WriteString(save + "\n" + tablestest.CanonicalIPTables(shell(t, n, save)))
	}
	return b.String() + tablestest.CanonicalIPSets(shell(t, n, "ipset save"))
}

// TestForeignChangesInIPTables tampers with rules and sets of a node. The agent
// notices long before its resync, and repairs them. Rules and sets of
// other programs stay, and established connections go on.
func TestForeignChangesInIPTables(t *testing.T) {
	t.Parallel()
	for _, backend := range iptablesBackends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			tamperWithIPTables(t, backend)
		})
	}
}

func tamperWithIPTables(t *testing.T, backend string) {
	l := newLabWith(t, lab.Config{Backend: backend})
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	shell(t, n, strings.ReplaceAll("IPT -N THEIRS; IPT -A THEIRS -j RETURN; IPT -A FORWARD -j THEIRS; ipset create theirs hash:ip; ipset add theirs 192.0.2.1", "IPT", backend))
	now := func() string { return oursInIPTables(t, n, backend) }
	before := now()
	for _, part := range []string{"-A FORWARD -j THEIRS", "add theirs 192.0.2.1", "flx:"} {
		if !strings.Contains(before, part) {
			t.Fatalf("no %q in the programmed state:\n%s", part, before)
		}
	}
	conn := dial(t, l, "c", "a", model.IPv4)
	for _, tamper := range []struct{ what, command string }{
		{"a jump to ours deleted", "IPT -t mangle -D FORWARD 1"},
		{"a rule of the agent deleted", "IPT -t mangle -D $(IPT-save -t mangle | sed -n 's/^-A \\(flx-in-[^ ]*\\) .*/\\1/p' | head -n 1) 1"},
		{"a rule added to a chain of the agent", "IPT -t mangle -I $(IPT-save -t mangle | sed -n 's/^-A \\(flx-in-[^ ]*\\) .*/\\1/p' | head -n 1) -j ACCEPT"},
		{"a member removed from a set", "ipset save | sed -n 's/^add \\(flx-.*\\)/del \\1/p' | head -n 1 | ipset restore"},
		{"a member added to a set", "ipset add $(ipset save | sed -n 's/^add \\(flx-[^ ]*\\) 10[.].*/\\1/p' | head -n 1) 10.99.99.99"},
		{"all flushed", "IPT -F; IPT -t mangle -F; IPT -N THEIRS; IPT -A THEIRS -j RETURN; IPT -A FORWARD -j THEIRS"},
	} {
		already := repairs(t, n)
		shell(t, n, strings.ReplaceAll(tamper.command, "IPT", backend))
		eventually.True(t, "status reports a repair: "+tamper.what, func() bool { return repairs(t, n) > already })
		asBefore(t, tamper.what, before, now)
		talk(t, conn, "after: "+tamper.what)
	}
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
}

func repairs(t *testing.T, n *lab.Node) int {
	t.Helper()
	status, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return status.Repairs.Total
}
