package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/cnitest"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestLostInterface has a pod delete its own interface. The agent names the pod until its sandbox is deleted.
// It stays ready and adds pods. It names no pod whose sandbox is deleted by the runtime, also if the
// namespace goes first, and none after a restart of the node.
func TestLostInterface(t *testing.T) {
	t.Parallel()
	n := newCNINode(t, "nftables")
	n.apply("", "a", "b", "c")
	n.untilAvailable()
	a := n.sandbox("one", "a")
	n.ok("ADD", a, nil)
	names := n.ports()
	if len(names) != 1 || n.lost() != "" {
		t.Fatalf("ports %v, %s", names, n.lost())
	}
	n.run("ip", "-n", a.NS.Name(), "link", "del", a.Interface)
	want := "pod x/a has lost its interface " + names[0]
	eventually.True(t, "the agent names the pod", func() bool { return strings.Contains(n.lost(), want) })
	if ready, why := n.ready(); !ready {
		t.Errorf("a pod without an interface makes the agent not ready: %s", why)
	}
	n.untilAvailable()
	n.ok("DEL", a, nil)
	eventually.True(t, "the agent names no pod", func() bool { return n.lost() == "" })
	again := n.sandbox("two", "a")
	n.ok("ADD", again, nil)

	// Longer than it took to name the pod.
	const enough = 4 * time.Second
	notNamed := func(when string) {
		t.Helper()
		for end := time.Now().Add(enough); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if lost := n.lost(); lost != "" {
				t.Fatalf("%s: %s", when, lost)
			}
		}
	}
	b, c := n.shortLived("three", "b"), n.shortLived("four", "c")
	n.ok("ADD", b, nil)
	n.ok("ADD", c, nil)
	n.end(b)
	notNamed("the namespace is deleted before DEL")
	n.ok("DEL", b, nil)
	n.ok("DEL", again, nil)
	notNamed("after DEL")
	n.stop(syscall.SIGKILL)
	n.end(c)
	n.start()
	n.untilAvailable()
	notNamed("after a restart of the node")
	if got := n.left(); got != noPodLeft {
		t.Error(got)
	}
}

// shortLived returns a sandbox for end.
func (n *cniNode) shortLived(id, pod string) cnitest.Sandbox {
	n.Helper()
	ns, err := namespace.Create("flx-e2ecni-" + uniqueName(n.T) + "-" + id)
	n.must(err)
	return cnitest.Sandbox{ID: id, Namespace: "x", Pod: pod, UID: "uid-" + pod, Interface: "eth0", NS: ns}
}

// end deletes the network namespace of a sandbox.
func (n *cniNode) end(s cnitest.Sandbox) {
	n.Helper()
	s.NS.Close()
	n.must(namespace.Delete(s.NS.Name()))
}

func (n *cniNode) control() *control.Client {
	return control.NewClient(filepath.Join(filepath.Dir(n.Socket), control.SocketName))
}

// ready asks the agent whether it is ready, and why not.
func (n *cniNode) ready() (ready bool, why string) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	ready, why, err := n.control().Probe(ctx, health.ReadyPath)
	n.must(err)
	return ready, why
}

// lost returns the problems of pods.
func (n *cniNode) lost() string {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	status, err := n.control().Status(ctx)
	n.must(err)
	var all []string
	for _, p := range status.Problems {
		if p.Object.Kind == "Pod" {
			all = append(all, p.Reason)
		}
	}
	return strings.Join(all, "; ")
}
