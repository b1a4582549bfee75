package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// logging lets x/c to x/a and passes x/d on to a policy that allows it, both with a log,
// denies x/b, and denies x/a a port of all nodes.
const logging = `
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: x, name: to-a, annotations: {felixlike.io/log: "true", felixlike.io/log-label: audit}},
  spec: {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: c}}}], ports: [{port: 80}]}, {from: [{podSelector: {matchLabels: {pod: d}}}]}]}}
---
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: guard, annotations: {felixlike.io/log: "true"}},
  spec: {tier: Admin, priority: 10, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: a}}}}, ingress: [
    {name: not-b, action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: b}}}}]},
    {name: on, action: Pass, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: d}}}}]}],
    egress: [{action: Deny, to: [{nodes: {}}], protocols: [{tcp: {destinationPort: {number: 7778}}}]}]}}
`

// followLog collects the lines of a node's policy log, without time and source port.
func followLog(t *testing.T, n *lab.Node) (lines func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var seen []string
	begun, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- control.NewClient(n.ControlSocket()).PolicyLog(ctx, func() { close(begun) }, func(l control.Logged) error {
			mu.Lock()
			defer mu.Unlock()
			if l.NotLogged == 0 {
				seen = append(seen, fmt.Sprintf("%s %s > %s %s %s %s: %s %s %s", l.Verdict, l.From, l.To, l.PortText(), l.Direction, l.Tier, l.Policy, l.Rule, l.LogLabel))
			}
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case <-begun:
	case err := <-done:
		t.Fatal(err)
	case <-time.After(eventually.Patience):
		t.Fatal("the agent does not answer")
	}
	return func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(seen) }
}

// TestPolicyLog follows the log under each backend. The rules with logging decide as
// others do, dump as wanted, and are repaired.
func TestPolicyLog(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes, logging))
	n := l.Node("node1")
	// counted returns the metric, which must never fall.
	var last [2]float64
	counted := func() {
		t.Helper()
		now := [2]float64{metric(t, n, policyMetric("allow")), metric(t, n, policyMetric("deny"))}
		if now[0] < last[0] || now[1] < last[1] {
			t.Errorf("allowed and denied packets fell from %v to %v", last, now)
		}
		last = now
	}
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			if out, code := onNode(t, n, "backend", "set", backend, "--socket", n.ControlSocket()); code != 0 {
				t.Fatal(out)
			}
			counted()
			lines := followLog(t, n)
			connect := func() {
				for _, f := range model.Families() {
					a := l.Pod(pod("a")).Address(f)
					for _, from := range []string{"b", "c", "d"} {
						send(t, l, from, a, "udp", 53, 1)
					}
					if conn, err := traffic.Connect(l.Pod(pod("a")).Namespace(), netip.Addr{}, netip.AddrPortFrom(n.Address(f), 7778), probeTimeout); err == nil {
						conn.Close()
					}
				}
				expect(t, l, false, "x/b", "x/a", model.TCP, 80)
				expect(t, l, true, "x/c", "x/a", model.TCP, 80)
				expect(t, l, true, "x/d", "x/a", model.TCP, 80)
			}
			want := []string{
				"deny x/b > x/a tcp/80 ingress admin: clusternetworkpolicy/guard ingress[0] ",
				"deny x/b > x/a udp/53 ingress admin: clusternetworkpolicy/guard ingress[0] ",
				"allow x/c > x/a tcp/80 ingress networkpolicy: networkpolicy/x/to-a ingress[0] audit",
				"pass x/d > x/a tcp/80 ingress admin: clusternetworkpolicy/guard ingress[1] ",
				"allow x/d > x/a tcp/80 ingress networkpolicy: networkpolicy/x/to-a ingress[1] audit",
				"pass x/d > x/a udp/53 ingress admin: clusternetworkpolicy/guard ingress[1] ",
				"allow x/d > x/a udp/53 ingress networkpolicy: networkpolicy/x/to-a ingress[1] audit",
				"deny x/a > node node1 tcp/7778 egress admin: clusternetworkpolicy/guard egress[0] ",
			}
			logged := func() bool {
				connect()
				return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(lines(), w) })
			}
			eventually.True(t, "all rules log", logged)
			for _, line := range lines() {
				if !slices.Contains(want, line) && !strings.HasPrefix(line, "pass x/d ") && !strings.HasPrefix(line, "allow x/d ") && !strings.HasPrefix(line, "deny x/b ") {
					t.Errorf("logged, but not decided by a rule with logging: %s", line)
				}
			}
			noDifference(t, n)
			from := last
			counted()
			if last[0] < from[0]+3 || last[1] < from[1]+2 {
				t.Errorf("allowed and denied packets grew from %v to %v only", from, last)
			}
		})
	}
	set(t, l, state(t, threeNodes))
	counted() // the rules are gone, what they counted is not
}

func policyMetric(action string) string {
	return `felixlike_policy_packets_total{action="` + action + `",direction="ingress"}`
}

// noDifference expects the programmed state of a node to be the wanted one.
func noDifference(t *testing.T, n *lab.Node) {
	t.Helper()
	eventually.True(t, "the node holds what it should", func() bool {
		out, code := onNode(t, n, "diff", "live", "wanted", "--socket", n.ControlSocket())
		if code != 0 {
			t.Log(out)
		}
		return code == 0
	})
}
