package e2e

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// supervise has a node's Open vSwitch supervised until the lab ends.
func supervise(t *testing.T, n *lab.Node) *lab.SupervisedOVS {
	t.Helper()
	s, err := n.SuperviseOVS()
	if err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "Open vSwitch of "+n.Name(), func() bool { return s.Serves(t.Context()) })
	return s
}

// TestRollout restarts Open vSwitch, and then agent and Open vSwitch of one node
// after the other, as a DaemonSet is rolled, while streams go on, servers push and connections wait: all
// of them are there afterwards, and no denied packet got through.
func TestRollout(t *testing.T) { inEachPlaceAlone(t, rollout) }

func rollout(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes, pushed))
	nodes := []*lab.Node{l.Node("node1"), l.Node("node2")}
	var all []*lab.SupervisedOVS
	for _, n := range nodes {
		all = append(all, supervise(t, n))
	}
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	pairs := [][2]string{{"c", "a"}, {"a", "b"}, {"a", "d"}}
	tr := startTraffic(t, l, pairs, [][2]string{{"b", "a"}, {"d", "a"}})
	tr.startQuiet(t, l, pairs)
	served := func() {
		t.Helper()
		programmed := time.Now()
		expect(t, l, true, "x/c", "x/a", model.TCP, 80)
		eventually.True(t, "all streams go on", func() bool { return tr.EchoedSince(programmed) })
	}
	served()
	// Open vSwitch alone: the agent finds the switch without its flows.
	if err := errors.Join(all[0].End(syscall.SIGTERM), all[0].Start()); err != nil {
		t.Fatal(err)
	}
	served()
	for i, s := range all {
		n := nodes[i]
		began := time.Now()
		if err := errors.Join(s.Signal(syscall.SIGTERM), n.StopAgent(), s.Wait()); err != nil {
			t.Fatal(err)
		}
		ended := time.Now()
		if err := errors.Join(s.Start(), n.StartAgent(), n.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: ended in %s, programmed again in %s", n.Name(), ended.Sub(began).Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
		served()
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
	has := hasUplink(t, n)
	if err := n.OVS().KillVSwitchd(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the uplink has the node's addresses", has("eth0"))
	if err := n.OVS().StartVSwitchd(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the userspace bridge has the node's addresses", has("br-phy"))
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
}

// hasUplink checks that the userspace bridge has the node's address and default route. It returns a
// function for other interfaces.
func hasUplink(t *testing.T, n *lab.Node) func(name string) func() bool {
	t.Helper()
	has := func(name string) func() bool {
		return func() bool {
			return strings.Contains(shell(t, n, "ip addr show dev "+name+" || true"), n.Address(model.IPv4).String()+"/") &&
				strings.Contains(shell(t, n, "ip route show default"), "dev "+name)
		}
	}
	if !has("br-phy")() {
		t.Fatal("the userspace bridge has not taken the node's addresses")
	}
	return has
}

// prefixRouteOnUplink adds a second route to the prefix of the nodes on the uplink, as NetworkManager, dhcpcd and
// systemd-networkd do. ovs-vswitchd would send tunnel packets by it, whatever its metric. The agent moves it at once.
func prefixRouteOnUplink(t *testing.T, l *lab.Lab, n *lab.Node, prefix string) {
	t.Helper()
	ip := "ip -4"
	if strings.Contains(prefix, ":") {
		ip = "ip -6"
	}
	began := time.Now()
	shell(t, n, ip+" route add "+prefix+" dev eth0 proto kernel metric 102")
	eventually.True(t, "the route to "+prefix+" is not on the uplink", func() bool { return shell(t, n, ip+" route show "+prefix+" dev eth0") == "" })
	t.Logf("route to %s moved after %s", prefix, time.Since(began).Round(10*time.Millisecond))
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l, false, "x/d", "x/a", model.TCP, 80)
}

// TestUplinkBridgeIsLost removes the bridge that has the node's addresses, and sets it down: the kernel
// deletes the node's routes, the default route too. The agent brings them back.
func TestUplinkBridgeIsLost(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	has := hasUplink(t, n)
	for _, command := range []string{
		"ovs-vsctl --timeout=10 --db=unix:$OVS_RUNDIR/db.sock del-br br-phy",
		"ip link set br-phy down",
	} {
		began := time.Now()
		shell(t, n, "export OVS_RUNDIR="+n.OVSDir()+"; "+command)
		eventually.True(t, "the bridge has the node's address and default route after "+command, has("br-phy"))
		t.Logf("%s: back after %s", command, time.Since(began).Round(10*time.Millisecond))
		expect(t, l, true, "x/c", "x/a", model.TCP, 80)
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	}
	prefixRouteOnUplink(t, l, n, "192.168.50.0/24")
}

// TestHungSwitch hangs ovs-vswitchd: the node says so within seconds, and when the
// supervisor has restarted it, allowed packets pass again, and denied ones do not.
func TestHungSwitch(t *testing.T) {
	t.Parallel()
	inLabsOf(t, places(), func(t *testing.T, l *lab.Lab, _ string) {
		set(t, l, state(t, threeNodes, onlyFromC))
		n := l.Node("node1")
		s := supervise(t, n)
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
		pid, err := s.PID("ovs-vswitchd")
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		eventually.True(t, "the node says that its switch hangs", func() bool {
			_, answer := ready()
			return strings.Contains(answer, "ovs-vswitchd has not answered for")
		})
		noticed := time.Since(began)
		eventually.True(t, "the node is ready again", func() bool { ready, _ := ready(); return ready })
		t.Logf("not ready after %s, ready after %s", noticed.Round(10*time.Millisecond), time.Since(began).Round(10*time.Millisecond))
		expect(t, l, true, "x/c", "x/a", model.TCP, 80)
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	})
}
