package e2e

import (
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	labprobe "github.com/felixlike/felixlike/test/lab/probe"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// mostLost bounds the datagrams of a route that get no answer while the agents are replaced. One is
// sent every 5 ms, so a restart of ovs-vswitchd, which takes half a second, loses a hundred.
const mostLost = 20

// datagramPort is the port of the pods that answer datagrams.
const datagramPort = 9090

// allFromC isolates x/a but for x/c, by any protocol.
const allFromC = `
{kind: NetworkPolicy, metadata: {namespace: x, name: all-from-c}, spec: {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: c}}}]}]}}
`

// TestAgentRollout replaces the agents of all nodes one after the other, as the DaemonSet of the
// agents is rolled. Open vSwitch, which has pods of its own, runs on, and traffic with it.
func TestAgentRollout(t *testing.T) { inEachPlaceAlone(t, agentRollout) }

func agentRollout(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes, allFromC))
	nodes := []*lab.Node{l.Node("node1"), l.Node("node2"), l.Node("node3")}
	switches := make([]*lab.SupervisedOVS, len(nodes))
	before := make([]int, len(nodes))
	for i, n := range nodes {
		switches[i] = supervise(t, n)
		before[i] = switchPID(t, switches[i])
	}
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	g := traffic.NewGauge(t.Context())
	t.Cleanup(g.Stop)
	all := routes(l, [][2]string{{"c", "a"}, {"a", "b"}, {"b", "d"}}, datagramPort)
	meters := make([]*traffic.Meter, len(all))
	for i, r := range all {
		err := stationOf(t, l, r).Serve(model.UDP, r.To)
		if err == nil {
			meters[i], err = g.Pings(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		eventually.True(t, r.Name, func() bool { return !meters[i].Last().IsZero() })
	}
	began := time.Now()
	attempts := make([]int, len(all))
	for i, m := range meters {
		attempts[i] = m.Attempts()
	}
	for _, n := range nodes {
		if err := n.StopAgent(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // a new pod starts
		if err := n.StartAgent(); err != nil {
			t.Fatal(err)
		}
		if err := n.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ended := time.Now()
	for i, m := range meters {
		sent, answered := m.Attempts()-attempts[i], m.Through(began, time.Now())
		t.Logf("%s: %d of %d datagrams got no answer, the longest gap was %s", all[i].Name, sent-answered, sent, m.Longest(began, ended).Length().Round(time.Millisecond))
		if sent-answered > mostLost {
			t.Errorf("%s: more than %d datagrams got no answer", all[i].Name, mostLost)
		}
	}
	for i, s := range switches {
		if now := switchPID(t, s); now != before[i] {
			t.Errorf("%s: ovs-vswitchd was process %d, and is %d", nodes[i].Name(), before[i], now)
		}
	}
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
}

// stationOf returns a station in the pod that a route leads to.
func stationOf(t *testing.T, l *lab.Lab, r traffic.Route) *labprobe.Station {
	t.Helper()
	for _, name := range []string{"a", "b", "d"} {
		p := l.Pod(pod(name))
		if p.Address(model.FamilyOf(r.To.Addr())) == r.To.Addr() {
			s := labprobe.NewStation(p.Namespace())
			t.Cleanup(func() { s.Close() })
			return s
		}
	}
	t.Fatalf("%s: no such pod", r.Name)
	return nil
}

func switchPID(t *testing.T, s *lab.SupervisedOVS) int {
	t.Helper()
	pid, err := s.PID("ovs-vswitchd")
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
