package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/test/eventually"
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

// cluster is a lab of two nodes under traffic and changes of policies.
type cluster struct {
	load
	backend string
	node    *lab.Node
	ovs     *lab.SupervisedOVS
	random  *rand.Rand
	machine *machine
	watcher *watcher
	// second is another agent of node1, saved the manifest as it is to be.
	second *lab.SecondAgent
	saved  string
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
	c := &cluster{load: load{t: t, lab: l}, backend: backend, random: seeded.Rand(t, t.Name()), machine: startMachine(t)}
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
		eventually.True(t, "Open vSwitch of "+name, func() bool { return ovs.Serves(t.Context()) })
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
