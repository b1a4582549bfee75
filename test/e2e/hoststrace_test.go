package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// tracedHosts are policies for nodes with each action, in three tiers, and a policy of pods before them.
const tracedHosts = `
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: hosts}, spec: {tier: platform, priority: 1,
  appliedTo: [{nodeSelector: {matchLabels: {kubernetes.io/hostname: node1}}}], ingress: [
    {action: Allow, name: peers, from: [{nodeSelector: {matchLabels: {kubernetes.io/hostname: node2}}}], ports: [{port: 7778}]},
    {action: Reject, from: [{podSelector: {matchLabels: {pod: a}}}], ports: [{port: 7779}]},
    {action: Pass, ports: [{port: 7780}]}, {action: Drop, enableLogging: true, logLabel: nodes}]}}
---
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: base}, spec: {tier: baseline, priority: 1,
  appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop, from: [{nodeSelector: {matchLabels: {kubernetes.io/hostname: node3}}}], ports: [{port: 7780}]}]}}
---
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: out}, spec: {priority: 5,
  appliedTo: [{nodeSelector: {matchLabels: {kubernetes.io/hostname: node2}}}], egress: [
    {action: Drop, to: [{nodeSelector: {matchLabels: {kubernetes.io/hostname: node3}}}], ports: [{port: 7779, endPort: 7780}]}]}}
---
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: before, annotations: {felixlike.io/pre-dnat: "true"}}, spec: {priority: 5,
  appliedTo: [{nodeSelector: {matchLabels: {kubernetes.io/hostname: node2}}}], ingress: [
    {action: Drop, from: [{nodeSelector: {matchLabels: {kubernetes.io/hostname: node1}}}, {podSelector: {matchLabels: {pod: c}}}], ports: [{port: 7778}]}]}}
---
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: pods}, spec: {priority: 1,
  appliedTo: [{podSelector: {matchLabels: {pod: b}}}], egress: [{action: Drop, to: [{nodeSelector: {}}], ports: [{port: 7780}]}]}}
`

// TestTraceHosts: for packets between nodes, and from pods to nodes, under each backend and in both families, trace says what happens
// to real ones, and names the rule that denies.
func TestTraceHosts(t *testing.T) {
	t.Parallel()
	inEachBackend(t, func(t *testing.T, l *lab.Lab, _ string) {
		nodes := []string{"node1", "node2", "node3"}
		named := threeNodes
		for _, n := range nodes {
			named = strings.Replace(named, "{name: "+n+"}", fmt.Sprintf("{name: %s, labels: {kubernetes.io/hostname: %[1]s}}", n), 1)
		}
		set(t, l, state(t, named))
		for _, n := range nodes {
			for _, port := range []string{"22", "7778", "7779", "7780"} {
				echoIn(t, l.Node(n).Namespace(), port)
			}
		}
		previewHosts(t, l.Node("node1"))
		set(t, l, state(t, named, tracedHosts))
		for _, n := range nodes {
			eventually.True(t, n+" confirms the policies", func() bool {
				s, err := l.Node(n).Status(t.Context())
				return err == nil && s.Hosts != nil && s.Hosts.State == control.HostsConfirmed
			})
		}
		logged := followLog(t, l.Node("node1"))
		w := readLab(t, l)
		var all sync.WaitGroup
		deciders := map[string]bool{}
		for _, f := range model.Families() {
			for _, from := range []string{"node1", "node2", "node3", "a", "b", "c"} {
				for _, to := range nodes {
					for _, port := range []uint16{22, 7778, 7779, 7780} {
						p := trace.Packet{Destination: l.Node(to).Address(f), Protocol: model.TCP, Port: port}
						ns := l.Node("node1").Namespace()
						if strings.HasPrefix(from, "node") {
							p.Source, ns = l.Node(from).Address(f), l.Node(from).Namespace()
						} else {
							p.Source, ns = l.Pod(pod(from)).Address(f), l.Pod(pod(from)).Namespace()
						}
						judged, err := w.Judge(p)
						if err != nil {
							t.Fatal(err)
						}
						path, err := w.Follow(p)
						if err != nil {
							t.Fatalf("%s: %v", p, err)
						}
						if what := trace.Compare(judged, path); what != "" {
							t.Errorf("%s -> %s: %s", from, to, what)
						}
						timeout := patience
						if !path.Fate.Through() {
							d := path.Decider()
							timeout, deciders[d.Policy+" "+d.PolicyRule] = 500*time.Millisecond, true
						}
						all.Go(func() {
							conn, err := traffic.Connect(ns, netip.Addr{}, netip.AddrPortFrom(p.Destination, port), timeout)
							if err == nil {
								_ = conn.Close()
							}
							if (err == nil) != path.Fate.Through() {
								t.Errorf("%s -> %s: %s: by trace %q, the packet: %v", from, to, p, path.Opinion().Why, err)
							}
						})
					}
				}
			}
		}
		all.Wait()
		for _, want := range []string{"clusternetworkpolicy.crd.antrea.io/hosts ingress[1]", "clusternetworkpolicy.crd.antrea.io/hosts ingress[3]", "clusternetworkpolicy.crd.antrea.io/base ingress[0]", "clusternetworkpolicy.crd.antrea.io/out egress[0]", "clusternetworkpolicy.crd.antrea.io/pods egress[0]"} {
			if !deciders[want] {
				t.Errorf("no trace names %s: %v", want, deciders)
			}
		}
		traceCommandOfHosts(t, l)
		hitsOfHosts(t, l.Node("node1"))
		eventually.True(t, "the log has a denied packet", func() bool { // it begins about a second after the first policy that logs
			if conn, err := traffic.Connect(l.Node("node3").Namespace(), netip.Addr{}, netip.AddrPortFrom(l.Node("node1").Address(model.IPv4), 7778), 100*time.Millisecond); err == nil {
				_ = conn.Close()
			}
			return slices.ContainsFunc(logged(), func(line string) bool {
				return strings.Contains(line, "deny node node3 > node node1 tcp/7778 ingress admin: ") && strings.HasSuffix(line, "/hosts ingress[3] nodes")
			})
		}, func() string { return strings.Join(logged(), "\n") })
	})
}

// previewHosts: a preview of the policies names the sockets of this test that they close, and those that the failsafe ports keep open, on a
// node without such policies, and the table that it gets.
func previewHosts(t *testing.T, n *lab.Node) {
	t.Helper()
	out, errs, code := felixctl(t, "preview", "--socket", n.ControlSocket(), "-f", file(t, tracedHosts), "-o", "json")
	var p preview.Preview
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != 1 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	becomes := map[uint16]string{}
	for _, s := range p.Sockets {
		if !s.Peer.IsValid() && s.Process != "" {
			becomes[s.Local.Port()] = s.Becomes
		}
	}
	for port, want := range map[uint16]string{22: preview.KeptOpen, 7778: preview.Denied, 7779: preview.Denied} {
		if becomes[port] != want {
			t.Errorf("port %d: %q, want %q: %s", port, becomes[port], want, out)
		}
	}
	if !strings.Contains(out, "felixlike-hosts") || len(p.OfNodes) == 0 {
		t.Errorf("the preview does not have the table: %s", out)
	}
}

// hitsOfHosts: the packets of TestTraceHosts are counted by rule, and in the metric.
func hitsOfHosts(t *testing.T, n *lab.Node) {
	t.Helper()
	hits, err := control.NewClient(n.ControlSocket()).Hits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts, denied, allowed := map[string]uint64{}, float64(0), float64(0)
	for _, h := range hits.Rules {
		if h.Node {
			counts[h.Policy+" "+h.Rule+" "+h.RuleName] = h.Connections
		}
	}
	for rule, want := range map[string]uint64{
		"clusternetworkpolicy.crd.antrea.io/hosts ingress[0] peers": 2, "clusternetworkpolicy.crd.antrea.io/hosts ingress[1] ": 2, "clusternetworkpolicy.crd.antrea.io/hosts ingress[2] ": 2,
		"clusternetworkpolicy.crd.antrea.io/hosts ingress[3] ": 4, "clusternetworkpolicy.crd.antrea.io/base ingress[0] ": 2,
	} {
		if counts[rule] < want {
			t.Errorf("%s: %d connections, want %d at least: %v", rule, counts[rule], want, counts)
		}
		switch rule {
		case "clusternetworkpolicy.crd.antrea.io/hosts ingress[0] peers":
			allowed += float64(want)
		case "clusternetworkpolicy.crd.antrea.io/hosts ingress[2] ":
		default:
			denied += float64(want)
		}
	}
	if a, d := metric(t, n, policyMetric("allow")), metric(t, n, policyMetric("deny")); a < allowed || d < denied {
		t.Errorf("the metric has %v allowed and %v denied packets, want %v and %v at least", a, d, allowed, denied)
	}
	out, _ := onNode(t, n, "policies", "--order", "node:"+n.Name(), "--socket", n.ControlSocket())
	if strings.Index(out, "base ") < strings.Index(out, "hosts ") || !strings.Contains(out, "platform (200)") {
		t.Errorf("the order of the node: %s", out)
	}
	if out, _ = onNode(t, n, "policies", "--socket", n.ControlSocket()); !strings.Contains(out, "node "+n.Name()) {
		t.Errorf("the policies do not name the node: %s", out)
	}
}

// traceCommandOfHosts asks felixctl trace on one node.
func traceCommandOfHosts(t *testing.T, l *lab.Lab) {
	t.Helper()
	for _, c := range []struct {
		node, from, to, port string
		code                 int
		want                 string
	}{
		{"node1", "node:node2", "node:node1", "7778/tcp", 0, "ingress by clusternetworkpolicy.crd.antrea.io/hosts ingress[0] (peers)"},
		{"node1", "node:node2", "node:node1", "7779/tcp", 1, "clusternetworkpolicy.crd.antrea.io/hosts ingress[3] denies it"},
		{"node1", "node:node2", "node:node1", "22/tcp", 0, "failsafe"},
		{"node2", "node:node2", "node:node3", "7780/tcp", 1, "clusternetworkpolicy.crd.antrea.io/out egress[0] denies it"},
		{"node2", "node:node2", "node:node3", "7778/tcp", 0, "is judged on node3, which was not asked"},
		{"node1", "x/a", "node:node1", "7779/tcp", 1, "clusternetworkpolicy.crd.antrea.io/hosts ingress[1] denies it"},
	} {
		args := []string{"trace", "--socket", l.Node(c.node).ControlSocket(), "--from", c.from, "--to", c.to, "--port", c.port}
		if strings.HasPrefix(c.from, "x/") {
			args = append(args, "--live")
		}
		out, errs, code := felixctl(t, args...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s%s", args, code, c.code, c.want, out, errs)
		}
	}
	out, _, _ := felixctl(t, "trace", "--socket", l.Node("node1").ControlSocket(), "--from", "198.51.100.7", "--to", "node:node1", "--port", "7779/tcp", "-o", "json")
	var answers []traceAnswer
	if err := json.Unmarshal([]byte(out), &answers); err != nil || len(answers) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	if d := answers[0].Programmed[0].Path.Decider(); answers[0].Verdict != "denied" || d.Policy != "clusternetworkpolicy.crd.antrea.io/hosts" || d.Table == "" {
		t.Errorf("from outside: %+v", d)
	}
}
