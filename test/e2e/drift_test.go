package e2e

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
	"github.com/felixlike/felixlike/test/stopwatch"
	"github.com/felixlike/felixlike/test/tablestest"
)

// nft runs the nft tool on a node, as another program would.
func nft(t *testing.T, n *lab.Node, args ...string) string {
	t.Helper()
	var out []byte
	err := n.Namespace().Do(func() (err error) {
		out, err = exec.Command("nft", args...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("nft %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// ours lists the agent's table without counters; "" if there is none.
func ours(t *testing.T, n *lab.Node) string {
	t.Helper()
	var out []byte
	err := n.Namespace().Do(func() error {
		out, _ = exec.Command("nft", "-s", "list", "table", "inet", "felixlike").Output()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tablestest.CanonicalNFT(string(out))
}

// repaired waits until the table is as it was, and prints the time.
func repaired(t *testing.T, n *lab.Node, what, before string) {
	t.Helper()
	asBefore(t, what, before, func() string { return ours(t, n) })
}

// asBefore waits until the state is as before, and prints the time.
func asBefore(t *testing.T, what, before string, now func() string) {
	t.Helper()
	start := time.Now()
	eventually.True(t, "repair of "+what, func() bool { return now() == before })
	t.Logf("%s: as before after %s", what, time.Since(start).Round(time.Millisecond))
}

// TestForeignChanges tampers with the table of a node. The agent repairs it and
// reports it in the status. Another program's table stays, and an
// established connection goes on.
func TestForeignChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	nft(t, n, "add table inet theirs; add chain inet theirs forward { type filter hook forward priority 10; policy accept; }; add rule inet theirs forward counter comment \"theirs\"")
	theirs := func() string { return nft(t, n, "-s", "-a", "list", "table", "inet", "theirs") }
	foreign, before := theirs(), ours(t, n)
	conn := dial(t, l, "c", "a", model.IPv4)
	for _, tamper := range []struct{ what, command string }{
		{"rule added", "insert rule inet felixlike forward accept"},
		{"chain flushed", "flush chain inet felixlike to-pods"},
		{"base chain deleted", "delete chain inet felixlike forward"},
		{"map emptied", "flush map inet felixlike to-pods-4"},
		{"table dormant", "add table inet felixlike { flags dormant; }"},
		{"table flushed", "flush table inet felixlike"},
		{"table deleted", "delete table inet felixlike"},
	} {
		nft(t, n, tamper.command)
		repaired(t, n, tamper.what, before)
		talk(t, conn, "after: "+tamper.what)
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	}
	if now := theirs(); now != foreign {
		t.Errorf("the foreign table was\n%s\nand is\n%s", foreign, now)
	}
	status, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status.Repairs.Total == 0 || len(status.Repairs.Last) == 0 {
		t.Errorf("the status has no repair: %+v", status.Repairs)
	}
	nft(t, n, "flush ruleset")
	if tables := shell(t, n, "nft list tables"); !strings.Contains(tables, "table inet "+conntrack.HoldTable+"\n") {
		t.Errorf("nothing holds connection tracking after a flush of the ruleset:\n%s", tables)
	}
	repaired(t, n, "ruleset flushed", before)
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
}

// flows lists a node's flows without counters, in no matter which order.
func flows(t *testing.T, n *lab.Node) string {
	t.Helper()
	lines := strings.Split(ofctl(t, n, "--no-stats", "dump-flows"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// ofctl runs ovs-ofctl on a node's bridge, as another program would. An
// option comes before the command.
func ofctl(t *testing.T, n *lab.Node, words ...string) string {
	t.Helper()
	at := slices.IndexFunc(words, func(w string) bool { return !strings.HasPrefix(w, "-") }) + 1
	args := slices.Concat([]string{"-O", "OpenFlow15"}, words[:at], []string{"unix:" + n.OVSDir() + "/" + lab.Bridge + ".mgmt"}, words[at:])
	out, err := exec.Command("ovs-ofctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ovs-ofctl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestForeignChangesOfFlows tampers with the flows of a node. The agent repairs them
// and reports it in the status, and an established connection goes on.
func TestForeignChangesOfFlows(t *testing.T) {
	t.Parallel()
	inEachPlace(t, foreignChangesOfFlows)
}

func foreignChangesOfFlows(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	ofctl(t, n, "add-flow", "cookie=0x77,table=200,priority=7,actions=drop")
	before := flows(t, n)
	conn := dial(t, l, "c", "a", model.IPv4)
	for _, tamper := range [][]string{
		{"--strict", "del-flows", "table=0,priority=0"},
		{"mod-flows", "table=10,priority=0,actions=NORMAL"},
		{"add-flow", "table=110,priority=0,actions=NORMAL"},
		{"add-flow", "cookie=0xf11c000000000007,table=0,priority=7,actions=NORMAL"},
		{"del-flows", "cookie=0xf11c000000000000/0xffff000000000000"},
	} {
		ofctl(t, n, tamper...)
		asBefore(t, strings.Join(tamper, " "), before, func() string { return flows(t, n) })
		talk(t, conn, "after: "+strings.Join(tamper, " "))
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	}
	status, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status.Repairs.Total == 0 || !slices.ContainsFunc(status.Repairs.Last, func(r control.Repair) bool { return r.Kind == "flow" && r.Name == "base" }) {
		t.Errorf("the status has no repair: %+v", status.Repairs)
	}
}

// TestRepairWhileTheSwitchHangs stops ovs-vswitchd so that the agent waits for
// it: policy is repaired all the same, and the agent answers.
func TestRepairWhileTheSwitchHangs(t *testing.T) {
	// So that the agent asks the switch again and again.
	t.Setenv("FELIXLIKE_RESYNC_INTERVAL", "1s")
	l := newLab(t)
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	before := ours(t, n)
	_, vswitchd := n.OVS().PIDs()
	if err := syscall.Kill(vswitchd, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := func() {
		if err := syscall.Kill(vswitchd, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(resume)
	eventually.True(t, "an apply that fails for the switch", func() bool {
		status, err := n.Status(t.Context())
		return err == nil && status.LastApply.Error != ""
	})
	for range 5 {
		nft(t, n, "flush ruleset")
		watch := stopwatch.Start(t)
		repaired(t, n, "ruleset flushed while the switch hangs", before)
		if took := watch.Lap(t); took.Net() > 2*time.Second {
			t.Errorf("the repair waited %s for the switch", took)
		}
		watch = stopwatch.Start(t)
		if _, err := n.Status(t.Context()); err != nil {
			t.Error(err)
		}
		if took := watch.Lap(t); took.Net() > 2*time.Second {
			t.Errorf("the status waited %s for the switch", took)
		}
	}
	resume()
	eventually.True(t, "traffic after the switch goes on", func() bool { return through(t, l) })
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
}

// TestFlushUnderFire flushes the ruleset again and again while a denied pod
// tries to get in: packets pass between a flush and its notification. The test prints
// the number that got in. None of them gets any further once policy is back,
// and none gets in without a flush.
func TestFlushUnderFire(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	before := ours(t, n)
	allowed := dial(t, l, "c", "a", model.IPv6)
	const flushes = 20
	in := 0
	for range flushes {
		nft(t, n, "flush ruleset")
		denied := routes(l, [][2]string{{"b", "a"}}, 80)[0]
		// The tool's own end takes longer than the notice.
		conn, err := traffic.Connect(denied.From, netip.Addr{}, denied.To, 150*time.Millisecond)
		repaired(t, n, "flush", before)
		if err == nil {
			in++
			silent(t, conn)
		}
		talk(t, allowed, "after a flush")
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	}
	t.Logf("%d of %d denied connections that were opened right after a flush got in, none of them further", in, flushes)
}

// silent fails the test if an open connection still carries a byte.
func silent(t *testing.T, conn *os.File) {
	t.Helper()
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte{'!'}); err != nil {
		return
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil && n > 0 {
		t.Error("a denied connection that was opened while the ruleset was flushed goes on")
	}
}

// TestForeignChangesOfPolicyFlows tampers with the flows that judge packets, under
// traffic: they are put right, and a switch that lost all its flows forwards
// nothing before they are.
func TestForeignChangesOfPolicyFlows(t *testing.T) {
	l := newLabWith(t, lab.Config{Backend: config.OpenFlow})
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	before := flows(t, n)
	tr := startTraffic(t, l, [][2]string{{"c", "a"}}, [][2]string{{"b", "a"}, {"d", "a"}})
	for _, tamper := range [][]string{
		{"del-flows"},
		{"mod-flows", "table=100,priority=200,actions=drop"},
		{"--strict", "add-flow", "cookie=0xf11d000000000007,table=100,priority=300,actions=drop"},
		{"del-flows", "cookie=0xf11c000000000000/0xffff000000000000"},
		{"del-flows"},
	} {
		ofctl(t, n, tamper...)
		asBefore(t, strings.Join(tamper, " "), before, func() string { return flows(t, n) })
	}
	nft(t, n, "delete table inet felixlike-openflow")
	eventually.True(t, "the host's table is back", func() bool { return shell(t, n, "nft list table inet felixlike-openflow") != "" })
	tr.stop(t)
	status, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, r := range status.Repairs.Last {
		kinds[r.Stage+" "+r.Kind] = true
	}
	if !kinds["openflow-policy flow"] || !kinds["openflow-policy table"] {
		t.Errorf("the status has %v", kinds)
	}
}
