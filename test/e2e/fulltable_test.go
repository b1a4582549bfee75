package e2e

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/stopwatch"
)

const (
	// mostFilled bounds the table that the test fills: 100 MB of the kernel's memory.
	mostFilled = 300_000
	// refusedWithin bounds a change of the backend that a full table prevents: it reads the whole table a few times.
	refusedWithin = 5 * time.Second
)

// TestBackendChangeWithFullConntrack changes the backend of a node whose kernel tracks as many connections as its
// limit. While the table has room, the change succeeds. If it has no room for a connection of the switch, the change is
// refused at once, and the connection goes on: also if an agent starts with the other backend.
func TestBackendChangeWithFullConntrack(t *testing.T) {
	l := newLabWith(t, lab.Config{Backend: config.OpenFlow})
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	timed := func(what string, do func()) time.Duration {
		t.Helper()
		watch := stopwatch.Start(t)
		do()
		took := watch.Lap(t)
		t.Logf("%s: %s", what, took)
		return took.Net()
	}
	both := func(table string) {
		t.Helper()
		timed("to nftables, table "+table, func() { change(t, n, config.NFTables) })
		timed("to openflow, table "+table, func() { change(t, n, config.OpenFlow) })
	}
	conn := dial(t, l, "c", "a", model.IPv4)
	both("nearly empty")
	limit := tableLimit(t, n)
	if limit > mostFilled {
		t.Skipf("the table takes %d entries", limit)
	}
	next := fill(t, n, 0, limit-5000)
	both("with room for 5,000 more")
	talk(t, conn, "after changes with many entries")
	keepFull(t, n, next, limit)
	if out, _ := onNode(t, n, "check", "--socket", n.ControlSocket(), "--ovs-run-dir", n.OVSDir()); !strings.Contains(out, "it is full, and new connections are dropped") {
		t.Errorf("felixctl check does not name the full table:\n%s", out)
	}
	var err error
	if took := timed("to nftables, table full", func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = control.NewClient(n.ControlSocket()).SetBackend(ctx, config.NFTables)
	}); took > refusedWithin {
		t.Errorf("the refusal took %s", took)
	}
	if err == nil || !strings.Contains(err.Error(), "backend openflow stays in force") || !strings.Contains(err.Error(), "nf_conntrack_max") {
		t.Errorf("the change: %v", err)
	}
	talk(t, conn, "after the refused change")
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	if err := n.KillAgent(); err != nil {
		t.Fatal(err)
	}
	n.Settings().Backend = config.NFTables
	if err := n.StartAgent(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the agent that starts with nftables says that openflow stays in force", func() bool {
		ready, why := readiness(t, n)
		return !ready && strings.Contains(why, "the configured backend nftables is not in force") && strings.Contains(why, "nf_conntrack_max")
	})
	talk(t, conn, "after the start with another backend")
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
}

// tableLimit returns the limit of the kernel's table of connections.
func tableLimit(t *testing.T, n *lab.Node) (limit int) {
	t.Helper()
	if err := n.Namespace().Do(func() error {
		_, most, err := conntrack.Entries()
		limit = int(most)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return limit
}

// fill adds entries that the kernel does not drop to make room, as of connections of the node to others, until the
// table has so many. It begins with the entry number from, and returns the next one.
func fill(t *testing.T, n *lab.Node, from, until int) (next int) {
	t.Helper()
	if err := n.Namespace().Do(func() (err error) { next, err = fillHere(from, until); return err }); err != nil {
		t.Fatal(err)
	}
	return next
}

func fillHere(from, until int) (next int, err error) {
	kernel, err := conntrack.OpenKernel()
	if err != nil {
		return from, err
	}
	defer func() { err = errors.Join(err, kernel.Close()) }()
	for {
		entries, _, err := conntrack.Entries()
		if err != nil || int(entries) >= until {
			return from, err
		}
		puts := make([]conntrack.Put, until-int(entries))
		for i := range puts {
			puts[i] = foreignConnection(from + i)
		}
		from += len(puts)
		if _, err := kernel.Write(puts); err != nil && !errors.Is(err, conntrack.ErrFull) {
			return from, err
		}
	}
}

// keepFull fills the table, and fills it again when an entry ends, until the test ends.
func keepFull(t *testing.T, n *lab.Node, from, limit int) {
	t.Helper()
	from = fill(t, n, from, limit)
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-done:
				ended <- nil
				return
			case <-time.After(5 * time.Millisecond):
			}
			// One look at a time: others use the namespace too.
			if err := n.Namespace().Do(func() (err error) { from, err = fillHere(from, limit); return err }); err != nil {
				ended <- err
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func foreignConnection(i int) conntrack.Put {
	to := conntrack.Tuple{
		Protocol: unix.IPPROTO_TCP, Src: netip.AddrFrom4([4]byte{198, 18, byte(i >> 24), byte(i >> 16)}),
		Dst: netip.MustParseAddr("198.51.100.1"), SrcPort: uint16(i), DstPort: 443,
	}
	return conntrack.Put{New: true, Connection: conntrack.Connection{
		Original: to, Reply: to.Reverse(), Replied: true, State: conntrack.StateEstablished, Timeout: time.Hour,
	}}
}
