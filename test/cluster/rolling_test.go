package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// stallTime bounds the stall of an established connection while a node's switch is
// replaced: the userspace switch forwards nothing meanwhile.
const stallTime = 90 * time.Second

// rolledTime bounds the roll-out on all nodes.
const rolledTime = 4 * time.Minute

// testRollingRestart restarts agents under traffic, and then switches.
func testRollingRestart(t *testing.T, s *site) {
	onlyFull(t)
	testAgentsAlone(t, s, "restarted", func() { s.roll(t) })
	s.underTraffic(t, "switched", func() { s.replaceSwitches(t) })
}

// testRollingChange changes the backend of the cluster, from each to each, under
// traffic.
func testRollingChange(t *testing.T, s *site) {
	onlyFull(t)
	s.underTraffic(t, "changed", func() {
		for _, backend := range s.otherBackends() {
			s.kubectl(t, "apply", "-k", s.overlay(backend))
			s.roll(t)
			s.expectBackend(t, backend)
		}
	})
}

// otherBackends lists the backends to go through, so that the last one is the
// cluster's own again.
func (s *site) otherBackends() []string {
	var all []string
	for _, b := range []string{"nftables", "openflow", "iptables"} {
		if b != s.backend {
			all = append(all, b)
		}
	}
	// There and back between the others, too.
	return append(all, all[0], s.backend)
}

// roll restarts the DaemonSet node by node.
func (s *site) roll(t *testing.T) {
	t.Helper()
	start := time.Now()
	s.kubectl(t, "-n", system, "rollout", "restart", daemonSet)
	s.kubectl(t, "-n", system, "rollout", "status", daemonSet, "--timeout="+rolledTime.String())
	t.Logf("rolled out in %s", since(start))
}

// underTraffic does something while connections between pods of one node and of two go on,
// and others are denied. It returns how many echo requests got no answer.
func (s *site) underTraffic(t *testing.T, ns string, something func()) int {
	t.Helper()
	s.inNamespace(t, ns)
	s.apply(t, fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: %s, name: from-friends}
spec:
  podSelector: {matchLabels: {pod: a}}
  ingress: [{from: [{podSelector: {matchLabels: {friend: "yes"}}}]}]
`, ns))
	nodes := s.Nodes()
	pods := s.start(t, ns, sleeper(ns, "a", nodes[0])+sleeper(ns, "b", nodes[0], `friend: "yes"`)+sleeper(ns, "c", nodes[1], `friend: "yes"`)+
		sleeper(ns, "d", nodes[0])+sleeper(ns, "e", nodes[1]))
	for _, p := range pods {
		p.serve(t, 80)
	}
	for _, friend := range []string{"b", "c"} {
		expect(t, true, friend+" to a", pods[friend].flows(pods["a"], 80))
	}
	for _, stranger := range []string{"d", "e"} {
		expect(t, false, stranger+" to a", pods[stranger].flows(pods["a"], 80))
	}
	tr := s.startTraffic(t, pods)
	pings := startPings(t, pods)
	something()
	unanswered := lost(t, pings)
	// Every stream has its last block echoed behind it.
	sum, err := tr.Stop()
	t.Log(sum)
	if err != nil {
		t.Error(err)
	}
	if sum.Blocks == 0 || sum.Pushed == 0 || sum.Opened == 0 || sum.Denied == 0 {
		t.Error("a kind of traffic never got going")
	}
	return unanswered
}

// startTraffic starts streams, servers that push, idle and new connections between
// friends, and attempts of strangers.
func (s *site) startTraffic(t *testing.T, pods map[string]*pod) *traffic.Traffic {
	t.Helper()
	o := traffic.Options{Patience: stallTime}
	var pushed []traffic.Route
	for _, f := range model.Families() {
		for _, pair := range [][2]string{{"b", "a"}, {"c", "a"}, {"a", "e"}, {"a", "d"}} {
			r := route(pods, pair, f, 80)
			o.Streams = append(o.Streams, r)
			o.Opened = append(o.Opened, r)
			pushed = append(pushed, route(pods, pair, f, 9000))
		}
		for _, pair := range [][2]string{{"d", "a"}, {"e", "a"}} {
			o.Denied = append(o.Denied, route(pods, pair, f, 80))
		}
	}
	tr := traffic.Start(t.Context(), o)
	t.Cleanup(func() { _, _ = tr.Stop() }) // the first Stop returns the faults
	served := map[netip.AddrPort]bool{}
	for i, r := range pushed {
		if err := tr.Idle(o.Streams[i]); err != nil {
			t.Fatal(err)
		}
		if served[r.To] {
			if err := tr.Listen(r); err != nil {
				t.Fatal(err)
			}
			continue
		}
		served[r.To] = true
		if err := tr.Push(serverOf(pods, r.To), r); err != nil {
			t.Fatal(err)
		}
	}
	until(t, readyTime, func() error {
		if sum := tr.Summary(); sum.Blocks < 50 || sum.Pushed < 50 || sum.Opened < 5 || sum.Denied < 5 {
			return errors.New(sum.String())
		}
		return nil
	})
	return tr
}

// route returns the route of a pair of pods.
func route(pods map[string]*pod, pair [2]string, f model.Family, port uint16) traffic.Route {
	from, to := pods[pair[0]], pods[pair[1]]
	return traffic.Route{
		Name: fmt.Sprintf("%s -> %s IPv%s", pair[0], pair[1], f),
		From: from.station.Namespace(), To: netip.AddrPortFrom(to.address(f), port),
	}
}

// serverOf returns the namespace of the pod that has an address.
func serverOf(pods map[string]*pod, at netip.AddrPort) *namespace.Namespace {
	for _, p := range pods {
		if p.address(model.FamilyOf(at.Addr())) == at.Addr() {
			return p.station.Namespace()
		}
	}
	return nil
}
