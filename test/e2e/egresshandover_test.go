package e2e

import (
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	labprobe "github.com/felixlike/felixlike/test/lab/probe"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// egressChanges is the number of changes of the backend in TestEgressHandover.
var egressChanges = flag.Int("egress-changes", 6, "change the backend so often in TestEgressHandover")

// shared gives pod a of node1 and pod c of node2 addresses that node1 holds.
const shared = `
{kind: Egress, apiVersion: felixlike.io/v1alpha1, metadata: {name: four}, spec: {node: node1, egressIP: 192.168.50.100, appliedTo: {podSelector: {matchExpressions: [{key: pod, operator: In, values: [a, c]}]}}}}
---
{kind: Egress, apiVersion: felixlike.io/v1alpha1, metadata: {name: six}, spec: {node: node1, egressIP: 'fd00:10::c0a8:3264', appliedTo: {podSelector: {matchExpressions: [{key: pod, operator: In, values: [a, c]}]}}}}
`

// TestEgressHandover changes the backends of both nodes again and again, while a pod of the node with the address of an Egress and a
// pod of another node talk to a host outside: streams, idle connections, servers that push, new connections, and datagrams. In every fifth
// change the agents are killed in the middle. No connection ends, and no packet comes to the host from an address of a node or of a pod.
func TestEgressHandover(t *testing.T) {
	l := newLabWith(t, lab.Config{Backend: config.NFTables})
	base := state(t, threeNodes, `{kind: NetworkPolicy, metadata: {namespace: x, name: out}, spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24}}, {ipBlock: {cidr: 'fd00:10::/64'}}]}]}}`)
	set(t, l, base)
	nodes := []*lab.Node{l.Node("node1"), l.Node("node2")}
	pods := []*lab.Pod{l.Pod(pod("a")), l.Pod(pod("c"))}
	var wrong []netip.Addr
	for _, f := range model.Families() {
		for i := range nodes {
			wrong = append(wrong, nodes[i].Address(f), pods[i].Address(f))
		}
	}

	outside, _, err := l.Host("ip:203.0.113.9", model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[model.Family]*outsideHost{}
	station := labprobe.NewStation(outside)
	t.Cleanup(func() { station.Close() })
	var ways, pushed []traffic.Route
	for _, f := range model.Families() {
		hosts[f] = newOutsideHost(t, l, "203.0.113.9", f)
		at := hosts[f].addr.Addr()
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			if err := station.Serve(p, netip.AddrPortFrom(at, 80)); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range pods {
			name := fmt.Sprintf("%s -> outside IPv%s", []string{"a", "c"}[i], f)
			ways = append(ways, traffic.Route{Name: name, From: p.Namespace(), To: netip.AddrPortFrom(at, 80)})
			pushed = append(pushed, traffic.Route{Name: name, From: p.Namespace(), To: netip.AddrPortFrom(at, pushPort)})
		}
	}

	strangers, err := traffic.Watch(outside, "br0", wrong...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := strangers.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, f := range model.Families() {
		for i, name := range []string{"a", "c"} {
			expectSource(t, l, hosts[f], name, nodes[i].Address(f).String())
		}
	}
	// arrived are packets to the host since a time from an address that pods may not have.
	arrived := func(since time.Time) []traffic.Arrival {
		t.Helper()
		all, err := strangers.Since(since)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(all, func(a traffic.Arrival) bool { return a.To.Addr() != hosts[model.FamilyOf(a.To.Addr())].addr.Addr() })
	}
	before := map[netip.AddrPort]bool{} // connections that keep the source which they began with
	for _, n := range nodes {
		for _, f := range model.Families() {
			eventually.True(t, "a packet from "+n.Address(f).String()+" is seen without an Egress", func() bool {
				return slices.ContainsFunc(arrived(time.Time{}), func(a traffic.Arrival) bool { return a.From.Addr() == n.Address(f) })
			})
		}
	}
	for _, a := range arrived(time.Time{}) {
		before[a.From] = true
	}

	set(t, l, base.Merge(state(t, shared)))
	expectShared := func() {
		t.Helper()
		for f, address := range elected {
			for _, name := range []string{"a", "c"} {
				expectSource(t, l, hosts[f], name, address.String())
			}
		}
	}
	expectShared()
	began := time.Now()
	tr := startOutside(t, outside, ways, pushed)
	gauge := traffic.NewGauge(t.Context())
	defer gauge.Stop()
	var pings []*traffic.Meter
	for _, w := range ways {
		m, err := gauge.Pings(w)
		if err != nil {
			t.Fatal(err)
		}
		pings = append(pings, m)
	}
	changeBackends(t, nodes, *egressChanges)
	changed := time.Now()
	for i, m := range pings {
		eventually.True(t, "datagrams of "+ways[i].Name+" are answered", func() bool { return m.Last().After(changed) })
	}
	sum, err := tr.Stop()
	t.Logf("%d changes on two nodes in %s: %s", *egressChanges, changed.Sub(began).Round(time.Second), sum)
	if err != nil {
		t.Error(err)
	}
	if sum.Blocks == 0 || sum.Opened == 0 || sum.Pushed == 0 {
		t.Error("a kind of traffic never got going")
	}
	expectShared()
	seen := slices.DeleteFunc(arrived(began), func(a traffic.Arrival) bool { return before[a.From] })
	if len(seen) > 0 {
		t.Errorf("%d packets with another source, the first ones are %v", len(seen), seen[:min(len(seen), 10)])
	}
}

// startOutside starts streams and new connections on some ways, a connection on each that is idle until the end, and servers that push.
func startOutside(t *testing.T, outside *namespace.Namespace, ways, pushed []traffic.Route) *traffic.Traffic {
	t.Helper()
	o := traffic.Options{Streams: ways, Opened: ways}
	if emulated() {
		o.Patience, o.Pause = time.Minute, 50*time.Millisecond
	}
	tr := traffic.Start(t.Context(), o)
	t.Cleanup(func() { _, _ = tr.Stop() }) // the first Stop returns the faults
	for _, w := range ways {
		if err := tr.Idle(w); err != nil {
			t.Fatal(err)
		}
	}
	served := map[netip.AddrPort]bool{}
	for _, w := range pushed {
		start := tr.Listen
		if !served[w.To] {
			start = func(r traffic.Route) error { return tr.Push(outside, r) }
		}
		served[w.To] = true
		if err := start(w); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}
