package openflow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/ovstest"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// watched is a table with a Watch.
type watched struct {
	*openflow.FlowTable
	changed chan time.Time
	ended   chan error
}

func watch(t *testing.T, table *openflow.FlowTable) *watched {
	t.Helper()
	w := &watched{table, make(chan time.Time, 100000), make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { w.ended <- table.Watch(ctx, func() { w.changed <- time.Now() }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-w.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v", err)
		}
	})
	return w
}

// noticed waits for a notice and returns how long it took.
func (w *watched) noticed(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	select {
	case at := <-w.changed:
		return at.Sub(since)
	case <-time.After(10 * time.Second):
		t.Fatal("not noticed")
		return 0
	}
}

// quiet asserts that nothing was noticed up to now.
func (w *watched) quiet(t *testing.T, what string, conns ...*openflow.Conn) {
	t.Helper()
	for _, c := range conns {
		// Reports of earlier changes come before the barrier's reply.
		if err := c.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.changed); n != 0 {
		t.Errorf("%s: noticed %d times", what, n)
	}
}

// owned is a table of an owner on a connection of its own, with the flows that
// it wants.
func owned(t *testing.T, b *ovstest.Bridge, owner uint16, groups map[string][]openflow.Flow) (*openflow.FlowTable, *openflow.Conn) {
	t.Helper()
	table, conn := openflow.NewFlowTable(owner, 1), dial(t, b)
	table.Connect(conn)
	for key, flows := range groups {
		table.SetFlows(key, fixed(flows))
	}
	if _, err := table.Apply(b.Context()); err != nil {
		t.Fatal(err)
	}
	return table, conn
}

func TestForeignChangesAreNoticedAndUndone(t *testing.T) {
	b := ovstest.NewBridge(t)
	flows := numbered(4)
	table, conn := owned(t, b, owner, map[string][]openflow.Flow{"left": flows[:2], "right": flows[2:]})
	other, otherConn := owned(t, b, owner+1, map[string][]openflow.Flow{"theirs": numberedFrom(10, 2)})
	w, o := watch(t, table), watch(t, other)
	all := append(texts(flows), texts(numberedFrom(10, 2))...)
	cookie := "cookie=0xf11c010000000000/0xffff000000000000"
	for _, c := range []struct {
		name   string
		tamper []string
		want   map[string]string
		others bool
	}{
		{"one flow deleted", []string{"--strict", "del-flows", "table=10,priority=200,ip,nw_src=10.0.0.1"}, map[string]string{"left": "1 flow missing"}, false},
		{"ours deleted", []string{"del-flows", cookie}, map[string]string{"left": "2 flows missing", "right": "2 flows missing"}, false},
		{"all deleted", []string{"del-flows"}, map[string]string{"left": "2 flows missing", "right": "2 flows missing"}, true},
		{"actions changed under the same cookie", []string{"mod-flows", "table=10,ip,nw_src=10.0.0.3,actions=NORMAL"}, map[string]string{"right": "1 flow changed"}, false},
		{"replaced without a cookie", []string{"add-flow", "table=10,priority=200,ip,nw_src=10.0.0.2,actions=NORMAL"}, map[string]string{"right": "1 flow changed"}, false},
		{"flow added with our owner", []string{"add-flow", "cookie=0xf11c000000000007,table=11,priority=7,reg9=5,ip,actions=NORMAL"}, map[string]string{"table=11,priority=7,cookie=0xf11c000000000007": "1 foreign flow"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			watch := stopwatch.Start(t)
			ofctl(b, c.tamper)
			start := time.Now()
			w.noticed(t, start)
			took := w.repair(t, b, c.want, start)
			if lost := watch.Lap(t).Lost; took-lost > 100*time.Millisecond {
				t.Errorf("noticed after %s, of these at most %s without a processor", took, lost)
			}
			if c.others {
				o.noticed(t, start)
				o.repair(t, b, map[string]string{"theirs": "2 flows missing"}, start)
			}
			w.quiet(t, "ours", conn)
			o.quiet(t, "theirs", otherConn)
			slices.Sort(all)
			if diff := cmp.Diff(all, b.Flows()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// ofctl runs ovs-ofctl; an option comes before the command.
func ofctl(b *ovstest.Bridge, words []string) {
	if words[0] == "--strict" {
		b.Run("ovs-ofctl", "-O", "OpenFlow15", "--strict", words[1], "unix:"+b.Management(), words[2])
		return
	}
	b.Ofctl(words[0], words[1:]...)
}

// repair applies until all wanted repairs were made, and returns the time until the
// last of the foreign changes was noticed.
func (w *watched) repair(t *testing.T, b *ovstest.Bridge, want map[string]string, since time.Time) time.Duration {
	t.Helper()
	got := map[string]string{}
	last := since
	ovstest.Poll(t, func() error {
		for len(w.changed) > 0 {
			<-w.changed
		}
		r, err := w.Apply(b.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.FullRead {
			t.Error("everything was read")
		}
		for _, repair := range r.Repaired {
			if repair.Object != "flow" {
				t.Errorf("repaired %+v", repair)
			}
			got[repair.Name], last = repair.What, repair.Noticed
		}
		if len(got) < len(want) {
			return errors.New(cmp.Diff(want, got))
		}
		return nil
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	return last.Sub(since)
}

func TestOwnChangesAreNotNoticed(t *testing.T) {
	b := ovstest.NewBridge(t)
	table, conn := owned(t, b, owner, map[string][]openflow.Flow{"a": numbered(3)})
	w := watch(t, table)
	other, otherConn := owned(t, b, owner+1, nil)
	for i := range 3 {
		table.SetFlows("a", fixed(numberedFrom(i, 3)))
		other.SetFlows("b", fixed(numberedFrom(100+i, 3000)))
		for _, f := range []*openflow.FlowTable{table, other} {
			if r, err := f.Apply(b.Context()); err != nil || len(r.Repaired) > 0 {
				t.Fatal(r, err)
			}
		}
	}
	b.Ofctl("add-flow", "table=10,priority=1,actions=drop")
	w.quiet(t, "own changes, and those of others", conn, otherConn)
}

func TestWatchSurvivesVSwitchd(t *testing.T) {
	b := ovstest.NewBridge(t)
	table, _ := owned(t, b, owner, map[string][]openflow.Flow{"a": numbered(3)})
	w := watch(t, table)
	if err := b.Daemons.KillVSwitchd(); err != nil {
		t.Fatal(err)
	}
	if err := b.Daemons.StartVSwitchd(b.Context()); err != nil {
		t.Fatal(err)
	}
	var conn *openflow.Conn
	ovstest.Poll(t, func() (err error) {
		conn, err = openflow.Dial(b.Context(), b.Management())
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	table.Connect(conn)
	apply(t, b, table, openflow.Result{Messages: 3, Added: 3})
	start := time.Now()
	b.Ofctl("del-flows")
	w.noticed(t, start)
	w.repair(t, b, map[string]string{"a": "3 flows missing"}, start)
}

func TestWhatDiffersAtAReadIsARepair(t *testing.T) {
	b := ovstest.NewBridge(t)
	table, conn := owned(t, b, owner, map[string][]openflow.Flow{"a": numbered(3)})
	silent := &silent{Conn: conn}
	table.Connect(silent)
	apply(t, b, table, openflow.Result{})
	if err := table.Watch(b.Context(), func() {}); !errors.Is(err, openflow.ErrNoMonitor) {
		t.Errorf("watching a switch that reports nothing: %v", err)
	}
	b.Ofctl("mod-flows", "table=10,ip,nw_src=10.0.0.1,actions=NORMAL")
	b.Ofctl("del-flows", "table=10,ip,nw_src=10.0.0.2")
	table.Connect(silent)
	got, err := table.Apply(b.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Repaired) != 1 || got.Repaired[0].Noticed.IsZero() {
		t.Fatalf("repaired %+v", got.Repaired)
	}
	got.Repaired[0].Noticed = time.Time{}
	want := openflow.Result{Messages: 2, Added: 2, FullRead: true, Repaired: []tables.Repair{{Object: "flow", Name: "a", What: "1 flow missing, 1 flow changed"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(texts(numbered(3)), b.Flows()); diff != "" {
		t.Error(diff)
	}
}

// Another program removes a flow while a bundle that replaces it is on its way. The
// report of the removal comes before the new flow, but is processed after it.
func TestChangesDuringABundle(t *testing.T) {
	b := ovstest.NewBridge(t)
	before, now := numbered(1), numbered(1)
	now[0].Actions = to(30)
	table, conn := owned(t, b, owner, map[string][]openflow.Flow{"a": before})
	rendered := 0
	table.SetFlows("a", func() []openflow.Flow {
		if rendered++; rendered == 2 { // for the bundle
			b.Ofctl("del-flows", "table=10,ip,nw_src=10.0.0.0")
		}
		return now
	})
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1})
	if diff := cmp.Diff(texts(now), b.Flows()); diff != "" {
		t.Fatal(diff)
	}
	table.RemoveFlows("a")
	if _, err := table.Apply(b.Context()); err != nil {
		t.Fatal(err)
	}
	if left := b.Flows(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	apply(t, b, table, openflow.Result{})
	if err := conn.Barrier(b.Context()); err != nil {
		t.Fatal(err)
	}
}

// Another program restores a flow of ours that is no longer desired, and then replaces
// it with a flow without a cookie. When our flow is desired again, it is missing.
func TestReplacedBeforeItIsWanted(t *testing.T) {
	b := ovstest.NewBridge(t)
	flows := numbered(1)
	table, conn := owned(t, b, owner, map[string][]openflow.Flow{"a": flows})
	stats, err := conn.FlowStats(b.Context(), owner, 10)
	if err != nil || len(stats) != 1 {
		t.Fatal(stats, err)
	}
	table.RemoveFlows("a")
	apply(t, b, table, openflow.Result{Messages: 1, Deleted: 1})
	b.Ofctl("add-flow", fmt.Sprintf("cookie=%#x,%s", stats[0].Cookie, flows[0]))
	b.Ofctl("add-flow", "table=10,priority=200,ip,nw_src=10.0.0.0,actions=NORMAL")
	if err := conn.Barrier(b.Context()); err != nil {
		t.Fatal(err)
	}
	table.SetFlows("a", fixed(flows))
	if _, err := table.Apply(b.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(texts(flows), b.Flows()); diff != "" {
		t.Error(diff)
	}
}

// A hung switch reports nothing. That must not pass for a switch without changes.
func TestHungSwitchIsNoticedWithoutChanges(t *testing.T) {
	b := ovstest.NewBridge(t)
	table, _ := owned(t, b, owner, map[string][]openflow.Flow{"a": numbered(3)})
	_, pid := b.Daemons.PIDs()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	ovstest.Poll(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := table.Apply(ctx); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("applied, with error %w", err)
		}
		return nil
	})
}

// silent is a switch that does not report changes.
type silent struct{ *openflow.Conn }

func (*silent) Monitor(context.Context, func([]openflow.FlowChange, bool)) error {
	return openflow.ErrNoMonitor
}

// A switch buffers a bounded number of reports for a client that does not read, and
// then reports that it dropped some.
func TestSlowListenerIsToldThatItMissedChanges(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn, table := dial(t, b), connected(t, b)
	hold, lost := make(chan struct{}), make(chan struct{}, 1)
	err := conn.Monitor(b.Context(), func(_ []openflow.FlowChange, skipped bool) {
		<-hold
		if skipped {
			lost <- struct{}{}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		table.SetFlows(strconv.Itoa(i), fixed(numberedFrom(i*10000, 10000)))
		apply(t, b, table, openflow.Result{Messages: 10000, Added: 10000})
	}
	close(hold)
	select {
	case <-lost:
	case <-time.After(10 * time.Second):
		t.Error("not notified")
	}
}

func TestMissedChangesMakeTheNextApplyReadAll(t *testing.T) {
	sw := &forgetful{}
	table := openflow.NewFlowTable(owner, 1)
	table.Connect(sw)
	read := func() bool {
		r, err := table.Apply(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r.FullRead
	}
	if !read() || read() {
		t.Error("read once at first")
	}
	w := watch(t, table)
	ovstest.Poll(t, func() error {
		sw.notify(nil, true)
		if len(w.changed) == 0 {
			return errors.New("not noticed")
		}
		return nil
	})
	if !read() || read() {
		t.Error("read once after changes were missed")
	}
}

type forgetful struct {
	nowhere
	notify func([]openflow.FlowChange, bool)
}

func (f *forgetful) Monitor(_ context.Context, notify func([]openflow.FlowChange, bool)) error {
	f.notify = notify
	return nil
}
