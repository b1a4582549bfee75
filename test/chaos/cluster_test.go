package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// The pods. Faults happen on node1.
const pods = `
{kind: Node, metadata: {name: node1}}
---
{kind: Node, metadata: {name: node2}}
---
{kind: Pod, metadata: {namespace: x, name: server, labels: {pod: server}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: near, labels: {pod: near}}, spec: {nodeName: node1, containers: [{name: c}]}}
---
{kind: Pod, metadata: {namespace: x, name: near-denied, labels: {pod: near-denied}}, spec: {nodeName: node1, containers: [{name: c}]}}
---
{kind: Pod, metadata: {namespace: x, name: mute, labels: {pod: mute}}, spec: {nodeName: node1, containers: [{name: c}]}}
---
{kind: Pod, metadata: {namespace: x, name: bystander, labels: {pod: bystander}}, spec: {nodeName: node1, containers: [{name: c}]}}
---
{kind: Pod, metadata: {namespace: x, name: far, labels: {pod: far}}, spec: {nodeName: node2, containers: [{name: c}]}}
---
{kind: Pod, metadata: {namespace: x, name: far-denied, labels: {pod: far-denied}}, spec: {nodeName: node2, containers: [{name: c}]}}
---
{kind: Pod, metadata: {namespace: x, name: open, labels: {pod: open}}, spec: {nodeName: node2, containers: [{name: c, ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]}]}}
`

// policies isolate x/server but for x/near and x/far, and let x/mute send nothing
// but to x/bystander.
const policies = `
{kind: NetworkPolicy, metadata: {namespace: x, name: server}, spec: {podSelector: {matchLabels: {pod: server}}, policyTypes: [Ingress],
  ingress: [{from: [{podSelector: {matchLabels: {pod: near}}}, {podSelector: {matchLabels: {pod: far}}}], ports: [{port: 80, endPort: 82}, {port: 80, endPort: 82, protocol: UDP}]}]}}
---
{kind: NetworkPolicy, metadata: {namespace: x, name: mute}, spec: {podSelector: {matchLabels: {pod: mute}}, policyTypes: [Egress],
  egress: [{to: [{podSelector: {matchLabels: {pod: bystander}}}]}]}}
`

const (
	// slowPort is the UDP port of servers that answer late, after slowBy: by then the
	// agent has repaired what a fault has opened.
	slowPort = 81
	slowBy   = 1500 * time.Millisecond
	// knockPort is the TCP port of servers for denied clients: their sockets go soon.
	knockPort = 82
	// streamPatience bounds a stall of a stream. TCP waits twice as long each time.
	streamPatience = 60 * time.Second
	// controlPort is outside of the ranges that source ports are taken from.
	controlPort = 20001
	// wait bounds the wait for what comes in seconds on an idle machine.
	wait = 90 * time.Second
)

// The traffic, from one pod to another.
func allowedPairs() [][2]string {
	return [][2]string{{"near", "server"}, {"far", "server"}, {"near", "open"}}
}

func deniedPairs() [][2]string {
	return [][2]string{{"near-denied", "server"}, {"far-denied", "server"}, {"mute", "open"}}
}

// allowed is the traffic of one route that policy allows.
type allowed struct {
	route           traffic.Route
	pings, openings *traffic.Meter
	stream          *traffic.Stream
}

// denied is one kind of traffic that policy denies.
type denied struct {
	name  string
	meter *traffic.Meter
}

// cluster is a lab of two nodes under traffic and changes of policies.
type cluster struct {
	t       *testing.T
	backend string
	lab     *lab.Lab
	node    *lab.Node
	ovs     *lab.SupervisedOVS
	random  *rand.Rand
	machine *machine
	watcher *watcher
	// second is another agent of node1, saved the manifest as it is to be.
	second *lab.SecondAgent
	saved  string

	// denying has the denied clients, gauge all other traffic.
	gauge, denying *traffic.Gauge
	allowed        []*allowed
	denied         []denied
	// starts counts the starts of the denied clients.
	starts   int
	arrivals []*traffic.Arrivals
	// leaked reports that the last row has let denied packets through.
	leaked bool
	// broken reports that a row has left the cluster unwell: those after it would prove nothing.
	broken bool
}

// newCluster makes a cluster with its traffic. It ends with the test.
func newCluster(t *testing.T, backend string) *cluster {
	t.Helper()
	l, err := lab.Up(t.Context(), lab.Config{
		Name: fmt.Sprintf("chaos-%d-%s", os.Getpid(), backend[len(backend)-3:]), Backend: backend, ServeCNI: true,
		Agent: filepath.Join(buildDir, lab.AgentProgram), SyncTimeout: wait,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, l)
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{t: t, backend: backend, lab: l, random: seeded.Rand(t, t.Name()), machine: startMachine(t)}
	set(t, l, pods)
	c.node = l.Node("node1")
	for _, name := range []string{"node1", "node2"} {
		ovs, err := l.Node(name).SuperviseOVS()
		if err != nil {
			t.Fatal(err)
		}
		if name == c.node.Name() {
			c.ovs = ovs
		}
		eventually(t, "Open vSwitch of "+name, func() bool { return ovs.Serves(t.Context()) })
	}
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.gauge = traffic.NewGauge(t.Context())
	t.Cleanup(c.gauge.Stop)
	c.watchArrivals()
	set(t, l, pods, policies)
	saved, err := os.ReadFile(c.manifest())
	if err != nil {
		t.Fatal(err)
	}
	c.saved = string(saved)
	c.startTraffic()
	c.startDenied()
	t.Cleanup(func() { c.denying.Stop() })
	c.watcher = watchAgents(t, l)
	c.churn()
	return c
}

// shell runs a script on node1, as another program would. It ends at the first command that fails.
func (c *cluster) shell(script string) error {
	return c.node.Namespace().Do(func() error {
		cmd := exec.Command("sh", "-e", "-c", script)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+c.node.OVSDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", script, err, out)
		}
		return nil
	})
}

// routes are the ways from one pod of each pair to the other one, over both families.
func (c *cluster) routes(pairs [][2]string, port uint16) []traffic.Route {
	var all []traffic.Route
	for _, p := range pairs {
		for _, f := range model.Families() {
			all = append(all, traffic.Route{
				Name: fmt.Sprintf("%s -> %s IPv%s", p[0], p[1], f),
				From: c.pod(p[0]).Namespace(), To: netip.AddrPortFrom(c.pod(p[1]).Address(f), port),
			})
		}
	}
	return all
}

func (c *cluster) pod(name string) *lab.Pod {
	return c.lab.Pod(model.PodID{Namespace: "x", Name: name})
}

// watchArrivals counts the packets of denied clients at the servers. There is no policy yet: a
// packet of each client and kind has to be counted once, or the count would prove nothing.
func (c *cluster) watchArrivals() {
	c.t.Helper()
	clients := map[string][]netip.Addr{}
	for _, p := range deniedPairs() {
		clients[p[1]] = append(clients[p[1]], c.pod(p[0]).Addresses()...)
	}
	for server, senders := range clients {
		a, err := traffic.Watch(c.pod(server).Namespace(), "eth0", senders...)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() {
			if err := a.Close(); err != nil {
				c.t.Error(err)
			}
		})
		c.arrivals = append(c.arrivals, a)
	}
	routes := c.routes(deniedPairs(), 80)
	eventually(c.t, "packets of all clients at the servers, without a policy", func() bool {
		for _, r := range routes {
			if err := c.gauge.Once(r, controlPort); err != nil {
				c.t.Fatal(err)
			}
		}
		arrived, err := c.leaks(time.Time{})
		if err != nil {
			c.t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, a := range arrived {
			seen[a.Protocol+" "+a.From.Addr().String()] = true
		}
		return len(seen) == 2*len(routes)
	})
}

// leaks are the packets of denied clients that reached a server after a time.
func (c *cluster) leaks(since time.Time) ([]traffic.Arrival, error) {
	var all []traffic.Arrival
	var errs []error
	for _, a := range c.arrivals {
		arrived, err := a.Since(since)
		all, errs = append(all, arrived...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// servers are the addresses of the servers of denied clients, with their namespaces.
func (c *cluster) servers(port uint16) map[netip.AddrPort]*namespace.Namespace {
	all := map[netip.AddrPort]*namespace.Namespace{}
	for _, p := range deniedPairs() {
		for _, a := range c.pod(p[1]).Addresses() {
			all[netip.AddrPortFrom(a, port)] = c.pod(p[1]).Namespace()
		}
	}
	return all
}

// startTraffic starts allowed traffic, and the servers of denied clients.
func (c *cluster) startTraffic() {
	c.t.Helper()
	must := func(err error) {
		if err != nil {
			c.t.Fatal(err)
		}
	}
	for _, r := range c.routes(allowedPairs(), 80) {
		pings, err := c.gauge.Pings(r)
		must(err)
		stream, err := c.gauge.Stream(r, streamPatience)
		must(err)
		c.allowed = append(c.allowed, &allowed{route: r, pings: pings, openings: c.gauge.Openings(r), stream: stream})
	}
	for at, ns := range c.servers(slowPort) {
		must(c.gauge.SlowServer(ns, at, slowBy))
	}
	for at, ns := range c.servers(knockPort) {
		must(c.gauge.Forgetful(ns, at))
	}
}

// Each start of the denied clients takes its source ports from another range.
const (
	firstPort  = 21000
	portRanges = 15
	rangePorts = 2900
)

// portRange returns the first and the last source port of the denied clients at a start.
func portRange(start int) (first, last int) {
	first = firstPort + start%portRanges*rangePorts
	return first, first + rangePorts - 1
}

// startDenied starts the denied clients, in the place of earlier ones, with other source
// ports. A flow that policy has allowed for a time may go on afterwards, and a later row would
// count it: also the packets of a new socket with the port of such a flow, because conntrack
// knows a flow by its addresses and ports alone.
func (c *cluster) startDenied() {
	c.t.Helper()
	if c.denying != nil {
		c.denying.Stop()
	}
	first, last := portRange(c.starts)
	c.starts++
	for _, p := range deniedPairs() {
		if err := c.pod(p[0]).Namespace().Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", fmt.Appendf(nil, "%d %d", first, last), 0o644)
		}); err != nil {
			c.t.Fatal(err)
		}
	}
	c.denying, c.denied = traffic.NewGauge(c.t.Context()), nil
	for port, name := range map[uint16]string{80: "UDP ", slowPort: "UDP to a slow server "} {
		for _, r := range c.routes(deniedPairs(), port) {
			m, err := c.denying.Datagrams(r)
			if err != nil {
				c.t.Fatal(err)
			}
			c.denied = append(c.denied, denied{name: name + r.Name, meter: m})
		}
	}
	for _, r := range c.routes(deniedPairs(), 80) {
		c.denied = append(c.denied, denied{name: "UDP from new sockets " + r.Name, meter: c.denying.NewSockets(r)})
	}
	for _, r := range c.routes(deniedPairs(), knockPort) {
		c.denied = append(c.denied, denied{name: "TCP " + r.Name, meter: c.denying.Knocks(r)})
	}
}

// churnEvery is the longest pause between two changes of policies, churned the number of
// policies that change.
const (
	churnEvery = 400 * time.Millisecond
	churned    = 6
)

// churn changes policies until the test ends: other ones of x/server, which allow nothing to
// the denied clients, and those of x/bystander.
func (c *cluster) churn() {
	ctx := c.t.Context()
	ended := make(chan struct{})
	random := seeded.Rand(c.t, c.t.Name()+" churn")
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			n := random.IntN(churned)
			path := filepath.Join(c.lab.Manifests(), fmt.Sprintf("churn-%d.yaml", n))
			err := os.Remove(path)
			if random.IntN(4) > 0 {
				err = replace(path, fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: x, name: churn-%d},
  spec: {podSelector: {matchLabels: {pod: %s}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {n: n%d}}}, {ipBlock: {cidr: 192.0.2.%d/32}}], ports: [{port: %d}]}]}}
`, n, [2]string{"server", "bystander"}[random.IntN(2)], random.IntN(3), random.IntN(256), 1000+random.IntN(4)))
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) && ctx.Err() == nil {
				c.t.Errorf("change of a policy: %v", err)
				return
			}
			pause(ctx, time.Duration(random.Int64N(int64(churnEvery))))
		}
	}()
	c.t.Cleanup(func() { <-ended })
}

// replace replaces a file at once.
func replace(path, text string) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

func set(t *testing.T, l *lab.Lab, texts ...string) {
	t.Helper()
	var s lab.State
	for _, text := range texts {
		more, err := lab.Parse(t.Name(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s = s.Merge(more)
	}
	if err := l.SetState(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// showLogs prints the end of the logs of agents and supervisors.
func showLogs(t *testing.T, l *lab.Lab) {
	files, err := filepath.Glob(filepath.Join(l.Dir(), "nodes", "*", "*.log"))
	if err != nil {
		t.Log(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Log(err)
		}
		const most = 4000
		t.Logf("%s:\n%s", file, strings.TrimSpace(string(text[max(0, len(text)-most):])))
	}
}

// eventually polls until ok or a generous deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !within(t.Context(), wait, ok) {
		t.Fatalf("waited in vain: %s", what)
	}
}

// within polls until ok, and reports whether it came in time.
func within(ctx context.Context, most time.Duration, ok func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
