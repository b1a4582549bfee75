package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/cnitest"
	"github.com/felixlike/felixlike/test/eventually"
)

const noPodLeft = "interfaces [], ports [], addresses []"

// TestCNI has a real agent attach pods, and looks at their policy the moment that
// ADD has answered.
func TestCNI(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			cniAttaches(newCNINode(t, backend))
		})
	}
}

func cniAttaches(n *cniNode) {
	n.apply("", "a", "b", "c")
	a, b, c := n.sandbox("one", "a"), n.sandbox("two", "b"), n.sandbox("three", "c")
	n.untilAvailable()
	before := n.flows()
	atB, atC := n.ok("ADD", b, nil), n.ok("ADD", c, nil)
	atA := n.ok("ADD", a, nil)
	if got := n.reach(c, a, atC, atA, probeTimeout); got != "00" {
		n.Errorf("denied traffic, as soon as ADD has answered: %s", got)
	}
	if got := n.reach(b, a, atB, atA, patience); got != "11" {
		n.Errorf("allowed traffic: %s", got)
	}
	n.ok("CHECK", a, map[string]any{"prevResult": atA.Result})

	// Without an agent pods keep their network; a new agent knows them.
	n.stop(syscall.SIGKILL)
	if got := n.call("STATUS", cnitest.Sandbox{}, nil); got.Code != 50 {
		n.Errorf("STATUS without an agent: %s", got.Raw)
	}
	if got := n.call("DEL", a, nil); got.Code != 11 {
		n.Errorf("DEL without an agent: %s", got.Raw)
	}
	n.start()
	n.untilAvailable()
	n.ok("CHECK", a, map[string]any{"prevResult": atA.Result})

	n.losesBridge(func(when string) {
		if got := n.reach(b, a, atB, atA, patience); got != "11" {
			n.Errorf("allowed traffic, %s: %s", when, got)
		}
		if got := n.reach(c, a, atC, atA, probeTimeout); got != "00" {
			n.Errorf("denied traffic, %s: %s", when, got)
		}
	})
	n.ok("CHECK", a, map[string]any{"prevResult": atA.Result})

	// The pod comes back under its name, before the first sandbox is deleted.
	again := n.sandbox("four", "a")
	atAgain := n.ok("ADD", again, nil)
	n.ok("DEL", a, nil)
	if got := n.reach(c, again, atC, atAgain, probeTimeout); got != "00" {
		n.Errorf("denied traffic, to the second sandbox: %s", got)
	}
	if got := n.reach(b, again, atB, atAgain, patience); got != "11" {
		n.Errorf("allowed traffic, to the second sandbox: %s", got)
	}
	for _, s := range []cnitest.Sandbox{again, b, c} {
		n.ok("DEL", s, nil)
	}
	if got := n.left(); got != noPodLeft {
		n.Error(got)
	}
	eventually.True(n.T, "the flows of the pods go", func() bool { return n.flows() == before })
}

// losesBridge removes ports of pods and the whole bridge, and damages the database of the
// switch, while the agent runs and while it does not. It checks the packets of the pods
// after each.
func (n *cniNode) losesBridge(check func(when string)) {
	n.Helper()
	before := n.left()
	remove := func(args ...string) {
		n.run("ovs-vsctl", append([]string{"--db=unix:" + n.ovs.DBSocket(), "--no-wait"}, args...)...)
	}
	whole := func(what string) {
		n.Helper()
		eventually.True(n.T, "all ports are back after "+what, func() bool { return n.left() == before })
		n.untilAvailable()
		check("after " + what)
	}
	for _, name := range n.ports() {
		remove("del-port", name)
	}
	whole("the ports were removed")
	remove("del-br", "br-int")
	whole("the bridge was removed")
	n.stop(syscall.SIGKILL)
	remove("del-br", "br-int")
	n.start()
	whole("the bridge was removed without an agent")
	replace := func() {
		n.must(os.WriteFile(filepath.Join(n.ovs.Dir(), "conf.db"), []byte("not a database"), 0o600))
		n.must(n.ovs.RestartDB(n.Context()))
	}
	replace()
	whole("the database was replaced")
	n.stop(syscall.SIGKILL)
	replace()
	n.start()
	whole("the database was replaced without an agent")
}

// untilAvailable waits until the agent says that pods can be added.
func (n *cniNode) untilAvailable() {
	n.Helper()
	eventually.True(n.T, "STATUS succeeds", func() bool { return !n.call("STATUS", cnitest.Sandbox{}, nil).Failed })
}

// TestCNIFailsClosed adds a pod that the datastore does not know, and one with another UID
// than the datastore has: both fail, and nothing is left of them.
func TestCNIFailsClosed(t *testing.T) {
	t.Parallel()
	n := newCNINode(t, "nftables")
	n.apply("", "a")
	n.untilAvailable()
	unknown, old := n.sandbox("one", "unknown"), n.sandbox("two", "a")
	old.UID = "uid-of-another-life"
	replies, _, err := n.Storm(t.Context(), "ADD", []cnitest.Sandbox{unknown, old})
	if err == nil {
		t.Fatal("pods were added that are not known")
	}
	for i, want := range []string{"the datastore knows no such pod", "another pod of this name: UID uid-a, not uid-of-another-life"} {
		if replies[i].Code != 11 || !strings.Contains(replies[i].Msg, want) {
			t.Errorf("want code 11 and %q: %s", want, replies[i].Raw)
		}
	}
	if got := n.left(); got != noPodLeft {
		t.Error(got)
	}
}

// TestCNIStorm adds and deletes a hundred pods at once, on each backend.
func TestCNIStorm(t *testing.T) {
	const pods = 100
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			n := newCNINode(t, backend)
			var names []string
			var all []cnitest.Sandbox
			for i := range pods {
				names = append(names, fmt.Sprintf("pod-%d", i))
				all = append(all, n.sandbox(fmt.Sprintf("storm-%d", i), names[i]))
			}
			n.apply("", names...)
			n.untilAvailable()
			before := n.flows()
			for _, command := range []string{"ADD", "DEL"} {
				began := time.Now()
				_, took, err := n.Storm(t.Context(), command, all)
				n.must(err)
				t.Logf("%s: %d times %s at once: %s in all; each p50 %s, p99 %s", backend, pods, command,
					time.Since(began).Round(time.Millisecond), took[pods/2].Round(time.Millisecond), took[pods*99/100].Round(time.Millisecond))
			}
			if got := n.left(); got != noPodLeft {
				t.Error(got)
			}
			eventually.True(t, "the flows of the pods go", func() bool { return n.flows() == before })
		})
	}
}
