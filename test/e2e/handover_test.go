package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// rounds is the number of changes of the backend, emulatedRounds that on an emulated
// processor: each change once. In every killedEvery-th round the agents are killed in the
// middle.
const (
	rounds         = 50
	emulatedRounds = 12
	killedEvery    = 5
)

// pushed isolates x/a but for x/c, on the ports of the lab and of push.
const pushed = `
{kind: NetworkPolicy, metadata: {namespace: x, name: only-from-c}, spec: {podSelector: {matchLabels: {pod: a}},
  ingress: [{from: [{podSelector: {matchLabels: {pod: c}}}], ports: [{port: 80}, {port: 9000}]}]}}
`

// TestBackendHandover changes the backends of live nodes again and again, from
// each to each, while streams carry data, servers push to clients that never say
// anything, idle connections wait, allowed connections are opened and denied ones
// are tried all the time. It kills the agents in the middle of every fifth change
// and starts them with the one setting or the other.
func TestBackendHandover(t *testing.T) {
	l := newLab(t)
	set(t, l, state(t, threeNodes, pushed))
	nodes := []*lab.Node{l.Node("node1"), l.Node("node2"), l.Node("node3")}
	pairs := [][2]string{{"c", "a"}, {"a", "b"}, {"a", "d"}}
	for _, p := range []string{"a", "c"} {
		comeBack(t, l.Pod(pod(p)))
	}
	tr := startTraffic(t, l, pairs, [][2]string{{"b", "a"}, {"d", "a"}})
	tr.startQuiet(t, l, pairs)
	changed := rounds
	if emulated() {
		changed = emulatedRounds
	}
	took := changeBackends(t, nodes, changed)
	tr.stop(t)
	for _, c := range allChanges(backends()) {
		name := c[0] + " to " + c[1]
		t.Logf("%-34s %2d times, the slowest in %s", name, len(took[name]), slowest(took[name]).Round(time.Millisecond))
	}
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	if emulated() {
		nodes = nodes[:1]
	}
	for _, n := range nodes {
		for _, to := range backends() {
			change(t, n, to)
			nothingLeft(t, n, to)
		}
	}
}

// TestChangesLoseNoRequest changes backends between the host and the switch while connections are opened. None of their requests and answers is
// lost: Linux would send it again after a second.
func TestChangesLoseNoRequest(t *testing.T) { losesNoRequest(t, 5, change) }

// TestRestartsLoseNoRequest is TestChangesLoseNoRequest with agents that start again with another backend in their configuration.
func TestRestartsLoseNoRequest(t *testing.T) { losesNoRequest(t, 2, restartWith) }

// losesNoRequest moves policy of all nodes from the host to the switch and back twice, so many times, under traffic.
func losesNoRequest(t *testing.T, times int, move func(t *testing.T, n *lab.Node, to string)) {
	t.Helper()
	l := newLab(t)
	set(t, l, state(t, threeNodes, pushed))
	for _, p := range []string{"a", "c"} {
		comeBack(t, l.Pod(pod(p)))
	}
	pairs, places := [][2]string{{"c", "a"}, {"a", "b"}, {"a", "d"}}, []string{config.OpenFlow, config.NFTables, config.OpenFlow, config.IPTablesNFT}
	if emulated() { // each packet takes so long that no more are possible
		pairs, times, places = pairs[:1], 1, places[:2]
	}
	tr := startTraffic(t, l, pairs, [][2]string{{"b", "a"}})
	for range times {
		for _, to := range places {
			for _, n := range []*lab.Node{l.Node("node1"), l.Node("node2"), l.Node("node3")} {
				move(t, n, to)
			}
		}
	}
	// A loaded machine may be late itself, once. With one step between host and switch, one in 2,000 was late.
	if sum := tr.stop(t); sum.Late > 1 {
		t.Errorf("%d of %d new connections were late", sum.Late, sum.Opened)
	}
}

// changeBackends changes the backends of nodes so often, from each to each, and kills the agents in the middle of every
// killedEvery-th change. It returns how long each kind of change took.
func changeBackends(t *testing.T, nodes []*lab.Node, times int) map[string][]time.Duration {
	t.Helper()
	took := map[string][]time.Duration{}
	changes := allChanges(backends())
	for round := range times {
		from, to := changes[round%len(changes)][0], changes[round%len(changes)][1]
		if round%killedEvery == killedEvery-1 {
			restart := from
			if round%2 == 0 {
				restart = to
			}
			killInTheMiddle(t, nodes, to, restart, time.Duration(10*round)*time.Millisecond)
		}
		for _, n := range nodes {
			start := time.Now()
			change(t, n, to)
			took[from+" to "+to] = append(took[from+" to "+to], time.Since(start))
		}
	}
	return took
}

// comeBack has a pod take a port again after some seconds, as a busy client does. By
// then nothing may be left of the connection that it was used for before.
func comeBack(t *testing.T, p *lab.Pod) {
	t.Helper()
	if err := p.Namespace().Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("33000 34999"), 0o644)
	}); err != nil {
		t.Fatal(err)
	}
}

// allChanges is a way over all changes from each backend to each other one. It
// begins with the first and ends where it began.
func allChanges(backends []string) [][2]string {
	var way [][2]string
	var visit func(at int)
	visit = func(at int) {
		for to := at + 1; to < len(backends); to++ {
			way = append(way, [2]string{backends[at], backends[to]})
			if to == at+1 {
				visit(to)
			}
			way = append(way, [2]string{backends[to], backends[at]})
		}
	}
	visit(0)
	return way
}

func slowest(all []time.Duration) time.Duration {
	var most time.Duration
	for _, d := range all {
		most = max(most, d)
	}
	return most
}

// change changes the backend of a node and checks that it is in force.
func change(t *testing.T, n *lab.Node, to string) {
	t.Helper()
	patience := time.Minute
	if emulated() {
		patience = emulatedSync
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	agent := control.NewClient(n.ControlSocket())
	if err := agent.SetBackend(ctx, to); err != nil {
		t.Fatalf("%s to %s: %v", n.Name(), to, err)
	}
	s, err := agent.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.Backend != to || s.Handover != nil {
		t.Errorf("%s: backend %s (%+v), wanted %s", n.Name(), s.Backend, s.Handover, to)
	}
}

// restartWith starts a node's agent again with another backend, and waits until that is in force and nothing is left of others. It checks that the agent
// began with the backend in force, if that is at the other enforcement point.
func restartWith(t *testing.T, n *lab.Node, to string) {
	t.Helper()
	said := func() int {
		log, err := os.ReadFile(n.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(log), "another backend is in force: beginning with it")
	}
	s, err := control.NewClient(n.ControlSocket()).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before, moves := said(), (s.Backend == config.OpenFlow) != (to == config.OpenFlow)
	if err := n.StopAgent(); err != nil {
		t.Fatal(err)
	}
	startWith(t, n, to)
	if began := said() > before; began != moves {
		t.Errorf("%s: from %s to %s, began with the backend in force: %v", n.Name(), s.Backend, to, began)
	}
}

// startWith starts a node's agent with a backend, and waits until that is in force and nothing is left of others.
func startWith(t *testing.T, n *lab.Node, to string) {
	t.Helper()
	n.Settings().Backend = to
	if err := n.StartAgent(); err != nil {
		t.Fatal(err)
	}
	if err := n.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the agent is ready", func() bool { ready, _ := readiness(t, n); return ready })
	if s, err := control.NewClient(n.ControlSocket()).Status(t.Context()); err != nil || s.Backend != to {
		t.Errorf("%s: backend %s (%v), configured is %s", n.Name(), s.Backend, err, to)
	}
	nothingLeft(t, n, to)
}

// killInTheMiddle kills the agents a moment after the command to change, and
// starts them again with a backend: they then follow their configuration, despite
// leftovers.
func killInTheMiddle(t *testing.T, nodes []*lab.Node, to, restart string, after time.Duration) {
	t.Helper()
	for _, n := range nodes {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		done := make(chan struct{})
		go func() {
			defer close(done)
			// Killed, it does not answer.
			_ = control.NewClient(n.ControlSocket()).SetBackend(ctx, to)
		}()
		pause(ctx, after)
		if err := n.KillAgent(); err != nil {
			t.Fatal(err)
		}
		<-done
		cancel()
		startWith(t, n, restart)
	}
}

// nothingLeft uses the tools to look for leftovers of backends that are
// not in force.
func nothingLeft(t *testing.T, n *lab.Node, inForce string) {
	t.Helper()
	bridge := "unix:" + filepath.Join(n.OVSDir(), lab.Bridge+".mgmt")
	for kind, script := range map[string]string{
		config.NFTables:       "nft list tables | grep 'felixlike$'",
		config.IPTablesLegacy: "(iptables-legacy-save; ip6tables-legacy-save) | grep -i flx",
		config.IPTablesNFT:    "(iptables-nft-save; ip6tables-nft-save) 2>/dev/null | grep -i flx",
		config.OpenFlow: "nft list tables | grep felixlike-openflow; " +
			"ovs-ofctl -O OpenFlow15 dump-flows " + bridge + " cookie=0xf11d000000000000/0xffff000000000000 | grep cookie; " +
			"ovs-ofctl -O OpenFlow15 dump-flows " + bridge + " | grep zone=65520; " +
			"ovs-ofctl -O OpenFlow15 dump-meters " + bridge + " | grep meter=; " +
			"ovs-ofctl -O OpenFlow15 dump-groups " + bridge + " | grep group_id=; " +
			"ovs-ofctl -O OpenFlow15 dump-flows " + bridge + " cookie=0xf11b000000000000/0xffff000000000000 | grep cookie; " +
			"ovs-appctl -t " + filepath.Join(n.OVSDir(), "ovs-vswitchd.*.ctl") + " dpctl/dump-conntrack zone=65520; " +
			"ovs-appctl -t " + filepath.Join(n.OVSDir(), "ovs-vswitchd.*.ctl") + " dpctl/dump-conntrack zone=65523",
	} {
		if left := shell(t, n, script); kind != inForce && left != "" {
			t.Errorf("left on %s of %s beside %s:\n%s", n.Name(), kind, inForce, left)
		}
	}
	uses := inForce == config.IPTablesLegacy || inForce == config.IPTablesNFT
	if sets := shell(t, n, "ipset list -n | grep flx"); !uses && sets != "" {
		t.Errorf("sets left on %s beside %s:\n%s", n.Name(), inForce, sets)
	}
}

// shell runs a script on a node and returns its output.
func shell(t *testing.T, n *lab.Node, script string) string {
	t.Helper()
	return shellIn(t, n.Namespace(), script)
}

// shellIn runs a script in a network namespace.
func shellIn(t *testing.T, in *namespace.Namespace, script string) string {
	t.Helper()
	var out []byte
	err := in.Do(func() error {
		// A grep that finds nothing fails.
		out, _ = exec.Command("sh", "-c", script).Output()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
