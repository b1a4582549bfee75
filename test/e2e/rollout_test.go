package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/supervisor"
	"github.com/felixlike/felixlike/test/lab"
)

// supervised is a node's Open vSwitch that is run by "felixlike-agent ovs", as on
// a cluster, in the place of the lab's daemons.
type supervised struct {
	t    *testing.T
	node *lab.Node
	cmd  *exec.Cmd
	done chan struct{}
}

// supervise has a node's Open vSwitch supervised until the test ends.
func supervise(t *testing.T, n *lab.Node) *supervised {
	t.Helper()
	if err := n.OVS().Stop(); err != nil {
		t.Fatal(err)
	}
	s := &supervised{t: t, node: n}
	s.start()
	t.Cleanup(func() { s.end(syscall.SIGTERM) })
	return s
}

func (s *supervised) start() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(filepath.Dir(s.node.LogFile()), "ovs.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(filepath.Join(buildDir, lab.AgentProgram), "ovs", "--node-name", s.node.Name(),
		"--ovs-run-dir", s.node.OVSDir(), "--database-dir", s.node.OVSDir(), "--bridge", lab.Bridge, "--datapath", "netdev")
	s.cmd.Stderr = log
	if err := s.node.Namespace().Do(s.cmd.Start); err != nil {
		s.t.Fatal(err)
	}
	s.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		defer close(done)
		_ = cmd.Wait() // how it ended is in its log
	}(s.cmd, s.done)
}

// signal sends the supervisor a signal; wait waits for its end.
func (s *supervised) signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) }

func (s *supervised) wait() {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(30 * time.Second):
		s.t.Fatalf("the supervisor of %s does not end", s.node.Name())
	}
}

func (s *supervised) end(sig syscall.Signal) {
	s.t.Helper()
	s.signal(sig)
	s.wait()
}

// serves reports whether both daemons answer.
func (s *supervised) serves() bool {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	return supervisor.Check(ctx, s.node.OVSDir()) == nil
}

// TestRollout restarts Open vSwitch, and then agent and Open vSwitch of one node
// after the other, as a DaemonSet is rolled, while streams go on, servers push and connections wait: all
// of them are there afterwards, and no denied packet got through.
func TestRollout(t *testing.T) { inEachPlaceAlone(t, rollout) }

func rollout(t *testing.T, l *lab.Lab) {
	var all []*supervised
	set(t, l, state(t, threeNodes, pushed))
	for _, name := range []string{"node1", "node2"} {
		all = append(all, supervise(t, l.Node(name)))
	}
	for _, s := range all {
		eventually(t, "Open vSwitch of "+s.node.Name(), s.serves)
	}
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	pairs := [][2]string{{"c", "a"}, {"a", "b"}, {"a", "d"}}
	tr := startTraffic(t, l, pairs, [][2]string{{"b", "a"}, {"d", "a"}})
	tr.startQuiet(t, l, pairs)
	// Open vSwitch alone: the agent finds the switch without its flows.
	all[0].end(syscall.SIGTERM)
	all[0].start()
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	for _, s := range all {
		began := time.Now()
		s.signal(syscall.SIGTERM)
		if err := s.node.StopAgent(); err != nil {
			t.Fatal(err)
		}
		s.wait()
		ended := time.Now()
		s.start()
		if err := s.node.StartAgent(); err != nil {
			t.Fatal(err)
		}
		if err := s.node.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: ended in %s, programmed again in %s", s.node.Name(), ended.Sub(began).Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
		expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	}
	tr.stop(t)
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
}

// TestSwitchAway has a node without Open vSwitch and without its supervisor, both gone
// silently: the agent keeps the node itself reachable.
func TestSwitchAway(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	has := func(name string) func() bool {
		return func() bool {
			return strings.Contains(shell(t, n, "ip addr show dev "+name), n.Address(model.IPv4).String()+"/") &&
				strings.Contains(shell(t, n, "ip route show default"), "dev "+name)
		}
	}
	if !has("br-phy")() {
		t.Fatal("the userspace bridge has not taken the node's addresses")
	}
	if err := n.OVS().KillVSwitchd(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the uplink has the node's addresses", has("eth0"))
	if err := n.OVS().StartVSwitchd(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the userspace bridge has the node's addresses", has("br-phy"))
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
}

// TestHungSwitch hangs ovs-vswitchd: the node says so within seconds, and when the
// supervisor has restarted it, allowed packets pass again, and denied ones do not.
func TestHungSwitch(t *testing.T) {
	inLabsOf(t, places(), func(t *testing.T, l *lab.Lab, _ string) {
		set(t, l, state(t, threeNodes, onlyFromC))
		n := l.Node("node1")
		s := supervise(t, n)
		eventually(t, "Open vSwitch of node1", s.serves)
		expect(t, l, true, "x/c", "x/a", model.TCP, 80)
		ready := func() (ready bool, answer string) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			ready, answer, err := control.NewClient(n.ControlSocket()).Probe(ctx, health.ReadyPath)
			if err != nil {
				t.Fatal(err)
			}
			return ready, answer
		}
		text, err := os.ReadFile(filepath.Join(n.OVSDir(), "ovs-vswitchd.pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		eventually(t, "the node says that its switch hangs", func() bool {
			_, answer := ready()
			return strings.Contains(answer, "ovs-vswitchd has not answered for")
		})
		noticed := time.Since(began)
		eventually(t, "the node is ready again", func() bool { ready, _ := ready(); return ready })
		t.Logf("not ready after %s, ready after %s", noticed.Round(10*time.Millisecond), time.Since(began).Round(10*time.Millisecond))
		expect(t, l, true, "x/c", "x/a", model.TCP, 80)
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	})
}
