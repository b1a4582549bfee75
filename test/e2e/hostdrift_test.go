package e2e

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// startPings has a pod talk to a UDP server until the test ends.
func startPings(t *testing.T, g *traffic.Gauge, l *lab.Lab, from string, to netip.AddrPort) *traffic.Meter {
	t.Helper()
	m, err := g.Pings(traffic.Route{Name: from, From: l.Pod(pod(from)).Namespace(), To: to})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// gap waits for answers that come a second after the start, and returns the longest time
// without an answer since then.
func gap(t *testing.T, m *traffic.Meter, start time.Time) time.Duration {
	t.Helper()
	eventually.True(t, "answers come again", func() bool { return m.Last().Sub(start) > time.Second })
	return m.Longest(start, m.Last()).Length()
}

// TestHostDrift tampers with the host's side of a node's gateway port while a pod of
// another node, and one of the same node, talk to a pod there. Each change is repaired
// within a second, is in the status, the log and the metrics, and the agent is ready.
func TestHostDrift(t *testing.T) {
	l := newLab(t)
	// The lab's servers are those of the ports that pods name.
	set(t, l, state(t, strings.Replace(threeNodes, "{containerPort: 81}", "{containerPort: 80, protocol: UDP}", 1)))
	n, a := l.Node("node1"), l.Pod(pod("a")).Address(model.IPv4)
	g := traffic.NewGauge(t.Context())
	t.Cleanup(g.Stop)
	far := startPings(t, g, l, "c", netip.AddrPortFrom(a, 80))
	near := startPings(t, g, l, "b", netip.AddrPortFrom(a, 80))
	peer := l.Pod(pod("c")).Address(model.IPv4)
	for _, c := range []struct{ what, command, kind string }{
		{"link down", "ip link set flx-gw0 down", "link"},
		{"address removed", "ip -4 address flush dev flx-gw0", "address"},
		{"route removed", "ip route del $(ip route get PEER | sed -n 's/.* via \\([^ ]*\\) .*/\\1/p' | sed 's/[.]1$/.0/')/24", "route"},
		{"rule removed", "ip rule del priority 20800", "rule"},
		{"neighbour removed", "ip neighbour del POD dev flx-gw0", "neighbour"},
		{"ip_forward=0", "sysctl -qw net.ipv4.ip_forward=0", "sysctl"},
		{"a setting without a notification", "sysctl -qw net.ipv4.conf.flx-gw0.arp_announce=0", "sysctl"},
	} {
		before := repairs(t, n)
		start, watch := time.Now(), stopwatch.Start(t)
		command := strings.NewReplacer("PEER", peer.String(), "POD", a.String()).Replace(c.command)
		err := n.Namespace().Do(func() error {
			out, err := exec.Command("sh", "-c", command).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", command, err, out)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "status has a repair: "+c.what, func() bool { return repairs(t, n) > before })
		reported := time.Since(start)
		gaps := []time.Duration{gap(t, far, start), gap(t, near, start)}
		lost := watch.Lap(t).Lost
		status, err := n.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var found control.Repair
		for _, r := range status.Repairs.Last {
			if r.Stage == "netlink" && r.Kind == c.kind && r.At.After(start) {
				found = r
				break
			}
		}
		if found.Name == "" {
			t.Errorf("%s: no such repair in %+v", c.what, status.Repairs.Last)
		}
		t.Logf("%-35s reported after %3d ms; longest gap %3d ms from another node, %3d ms on the node; %s %s: %s", c.what,
			reported.Milliseconds(), gaps[0].Milliseconds(), gaps[1].Milliseconds(), found.Kind, found.Name, found.What)
		for _, gap := range gaps {
			if gap-lost > time.Second {
				t.Errorf("%s: no answer for %s, of these at most %s without a processor", c.what, gap, lost)
			}
		}
		if text := shell(t, n, "grep -c 'repaired a foreign change.*stage=netlink.*object=.*"+c.kind+"' "+n.LogFile()); strings.TrimSpace(text) == "0" {
			t.Errorf("%s: the log says nothing", c.what)
		}
		// Changes one after the other are no fight.
		pause(t.Context(), time.Second)
	}
	probed(t, "ready", n.ControlSocket(), 0)
	unrepairable(t, l)
}

// unrepairable puts a route of another program in the place of ours. The agent leaves it
// there, and is not ready until it goes.
func unrepairable(t *testing.T, l *lab.Lab) {
	n := l.Node("node1")
	to := strings.TrimSpace(shell(t, n, "ip route show proto 208 table main | grep via | head -n 1 | cut -d ' ' -f 1"))
	shell(t, n, "ip route replace "+to+" dev lo")
	problem := func() string {
		status, err := n.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range status.Problems {
			if strings.Contains(p.Reason, to) {
				return p.Reason
			}
		}
		return ""
	}
	eventually.True(t, "status has a problem", func() bool { return problem() != "" })
	t.Log(problem())
	probed(t, "ready", n.ControlSocket(), 1)
	shell(t, n, "ip route del "+to+" dev lo")
	eventually.True(t, "the problem has gone", func() bool { return problem() == "" })
	eventually.True(t, "the agent is ready", func() bool {
		return exec.Command(filepath.Join(buildDir, lab.AgentProgram), "probe", "ready", "--node-name", "node1", "--run-dir", filepath.Dir(n.ControlSocket())).Run() == nil
	})
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
}
