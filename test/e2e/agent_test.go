package e2e

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// dial opens a TCP connection from a pod to another one's port 80.
func dial(t *testing.T, l *lab.Lab, from, to string, f model.Family) net.Conn {
	t.Helper()
	a, b := l.Pod(pod(from)), l.Pod(pod(to))
	var conn net.Conn
	err := a.Namespace().Do(func() (err error) {
		d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: a.Address(f).AsSlice()}}
		conn, err = d.DialContext(t.Context(), "tcp", netip.AddrPortFrom(b.Address(f), 80).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// talk sends a byte over an open connection and waits for its echo.
func talk(t *testing.T, conn net.Conn, when string) {
	t.Helper()
	buffer := []byte{'!'}
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(buffer); err != nil {
		t.Fatalf("established connection %s: %v", when, err)
	}
	if _, err := conn.Read(buffer); err != nil {
		t.Fatalf("established connection %s: %v", when, err)
	}
}

func noWrites(t *testing.T, n *lab.Node, when string) {
	t.Helper()
	status, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(status.Writes) == 0 {
		t.Errorf("%s %s: the agent does not count its writes", n.Name(), when)
	}
	for receiver, count := range status.Writes {
		if count != 0 {
			t.Errorf("%s %s: %d mutating messages to %s", n.Name(), when, count, receiver)
		}
	}
}

// TestAgentCrash kills agents the hard way: policy stays enforced, established
// connections go on, and a restart with nothing changed writes nothing.
func TestAgentCrash(t *testing.T) {
	t.Parallel()
	inEachBackend(t, crash)
}

func crash(t *testing.T, l *lab.Lab, _ string) {
	set(t, l, state(t, threeNodes, onlyFromC))
	judge := func(when string) {
		t.Helper()
		t.Log(when)
		expect(t, l, true, "x/c", "x/a", model.TCP, 80)
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
		expect(t, l, false, "x/c", "x/a", model.TCP, 81)
	}
	judge("before the crash")
	var conns []net.Conn
	for _, f := range model.Families() {
		conns = append(conns, dial(t, l, "c", "a", f))
	}
	talkAll := func(when string) {
		for _, conn := range conns {
			talk(t, conn, when)
		}
	}
	talkAll("before the crash")
	for _, node := range []string{"node1", "node2"} {
		if err := l.Node(node).KillAgent(); err != nil {
			t.Fatal(err)
		}
	}
	judge("without agents")
	talkAll("without agents")
	for _, node := range []string{"node1", "node2"} {
		if err := l.Node(node).StartAgent(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	talkAll("after the restart")
	for _, node := range []string{"node1", "node2"} {
		noWrites(t, l.Node(node), "after the restart")
	}
	judge("after the restart")
}

// alsoFromB allows what onlyFromC does not.
const alsoFromB = `
{kind: NetworkPolicy, metadata: {namespace: x, name: also-from-b}, spec: {podSelector: {matchLabels: {pod: a}},
  ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}], ports: [{port: 80}]}]}}
`

// TestChangesWhileTheAgentIsDown are programmed by its next start, which takes back what a policy allowed that is gone meanwhile.
func TestChangesWhileTheAgentIsDown(t *testing.T) {
	t.Parallel()
	inEachPlace(t, changesWhileTheAgentIsDown)
}

func changesWhileTheAgentIsDown(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes, onlyFromC, alsoFromB))
	expect(t, l, true, "x/b", "x/a", model.TCP, 80)
	if err := l.Node("node1").KillAgent(); err != nil {
		t.Fatal(err)
	}
	expect(t, l, true, "x/b", "x/a", model.TCP, 80)
	ctx := t.Context()
	done := make(chan error, 1)
	go func() { done <- l.SetState(ctx, state(t, threeNodes, onlyFromC)) }()
	if err := <-done; err == nil {
		t.Fatal("a state was reported as programmed by an agent that does not run")
	}
	if err := l.Node("node1").StartAgent(); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
}

// TestUnchangedModelWritesNothing applies one state again and again.
func TestUnchangedModelWritesNothing(t *testing.T) {
	t.Parallel()
	inEachBackend(t, func(t *testing.T, l *lab.Lab, backend string) {
		s := state(t, threeNodes, onlyFromC)
		set(t, l, s)
		before := writes(t, l, backend)
		for range 3 {
			set(t, l, s)
		}
		if after := writes(t, l, backend); before != after {
			t.Errorf("writes before %s, after %s", before, after)
		}
	})
}

// stageOf is the stage that programs a backend's policy.
func stageOf(backend string) string {
	if backend == config.OpenFlow {
		return "openflow-policy"
	}
	return backend
}

// writes returns the numbers of writes of each node, with the backend.
func writes(t *testing.T, l *lab.Lab, backend string) string {
	t.Helper()
	var parts []string
	for _, name := range []string{"node1", "node2", "node3"} {
		status, err := l.Node(name).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if status.Writes[stageOf(backend)] == 0 {
			t.Errorf("%s has written nothing by %s: %v", name, backend, status.Writes)
		}
		for _, receiver := range slices.Sorted(maps.Keys(status.Writes)) {
			parts = append(parts, name+" "+receiver+" "+strconv.Itoa(status.Writes[receiver]))
		}
	}
	return strings.Join(parts, ", ")
}

// TestBadManifests: a bad object is reported, and all others stay enforced.
func TestBadManifests(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := state(t, threeNodes, onlyFromC)
	s.Files = map[string][]byte{
		"broken.yaml":     []byte("kind: NetworkPolicy\nmetadata: {name: broken\n  spec: ["),
		"unknown.yaml":    []byte("apiVersion: example.org/v1\nkind: Gadget\nmetadata: {name: g, namespace: x}\n"),
		"impossible.yaml": []byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: impossible, namespace: x}\nspec:\n  podSelector: {matchLabels: {pod: d}}\n  ingress:\n  - ports: [{port: 70000}]\n"),
	}
	set(t, l, s)
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	expect(t, l, true, "x/a", "x/b", model.TCP, 80)
	expect(t, l, false, "x/a", "x/d", model.TCP, 80)
	status, err := l.Node("node3").Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for file := range s.Files {
		found := false
		for _, p := range status.Problems {
			found = found || strings.Contains(p.Source, file) && p.Reason != ""
		}
		if !found {
			t.Errorf("no problem names %s: %v", file, status.Problems)
		}
	}
	s.Files = nil
	set(t, l, s)
	expect(t, l, true, "x/a", "x/d", model.TCP, 80)
}
