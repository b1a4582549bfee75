package packetlog

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestHistoryBounds: packets that differ in time and port only are one row of their minute. After an hour they go, and if there is no more
// room, the oldest minutes go first; packets without room are counted.
func TestHistoryBounds(t *testing.T) {
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	h := &History{now: func() time.Time { return now }}
	h.begun()
	from := func(i int) *control.Drop {
		a := netip.AddrFrom4([4]byte{10, 10, byte(i >> 8), byte(i)})
		return &control.Drop{At: now, Direction: "ingress", From: control.DropEnd{Address: a}, Protocol: "tcp", SourcePort: uint16(i + 1), Port: 80}
	}
	add := func(d *control.Drop) {
		t.Helper()
		if err := h.take(d); err != nil {
			t.Fatal(err)
		}
	}
	state := func() string {
		t.Helper()
		all, err := h.DropHistory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text := all.From.Format("15:04")
		for _, m := range all.Minutes {
			packets := uint64(0)
			for _, f := range m.Flows {
				packets += f.Packets
				if f.SourcePort != 0 {
					t.Errorf("a row has the source port of one packet: %+v", f)
				}
			}
			text += fmt.Sprintf(" %s: %d flows, %d packets, %d not shown;", m.Begin.Format("15:04"), len(m.Flows), packets, m.NotShown)
		}
		return text
	}
	expect := func(want string) {
		t.Helper()
		if got := state(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	add(from(1))
	d := from(1)
	d.SourcePort = 9
	add(d)
	add(from(2))
	add(&control.Drop{At: now, NotShown: 7})
	expect("10:00 10:00: 2 flows, 3 packets, 7 not shown;")
	now = now.Add(59 * time.Minute)
	add(from(1))
	expect("10:00 10:00: 2 flows, 3 packets, 7 not shown; 10:59: 1 flows, 1 packets, 0 not shown;")
	now = now.Add(2 * time.Minute)
	add(nil)
	expect("10:01 10:59: 1 flows, 1 packets, 0 not shown;")
	for i := range historyFlows + 10 {
		add(from(i))
	}
	expect("11:00 11:01: 4096 flows, 4096 packets, 10 not shown;")
	now = now.Add(time.Minute)
	add(from(1))
	expect("11:02 11:02: 1 flows, 1 packets, 0 not shown;")
}

// TestHistoryFollows: reports are on from the first apply, an agent that ends leaves them on, and a dataplane that cannot report is named,
// with the reports off.
func TestHistoryFollows(t *testing.T) {
	run := func(reports *fakeDenials) (*moduletest.Fixture, *drivertest.Table, *History) {
		t.Helper()
		table, v := drivertest.NewTable(t), &driver.View{}
		h := NewHistory(NewDenied(v))
		b := &drivertest.Backend{DenialsIs: reports}
		b.NameIs, b.StageIs = "fake", table.Stage()
		return moduletest.Start(t, driver.Config{Stages: []backend.Stage{table.Stage()}, Backend: b}, v, h.Module()), table, h
	}
	reports := &fakeDenials{}
	f, table, h := run(reports)
	f.Attach("a", "10.10.0.5")
	f.Begin(t, drivertest.PodOn("a", "node1"))
	begun := func() bool {
		all, err := h.DropHistory(t.Context())
		return err == nil && !all.From.IsZero()
	}
	eventually.True(t, "the history follows", begun)
	reports.report(denied.Report{At: time.Now(), Direction: model.Ingress, Packet: packet(t)})
	eventually.True(t, "the history has the packet", func() bool {
		all, err := h.DropHistory(t.Context())
		return err == nil && len(all.Minutes) == 1 && all.Minutes[0].Flows[0].To.Pod == "x/a"
	})
	if got := reportedIn(table); len(got) != 1 || !got[0] {
		t.Errorf("requests of reports: %v", got)
	}

	broken := &fakeDenials{check: errors.New("no nfnetlink_log")}
	f, table, h = run(broken)
	f.AttachmentsSynced()
	f.Begin(t)
	eventually.True(t, "the history says why it has nothing", func() bool {
		all, err := h.DropHistory(t.Context())
		return err == nil && all.From.IsZero() && strings.Contains(all.Fault, "no nfnetlink_log")
	})
	if got := reportedIn(table); len(got) != 2 || got[1] {
		t.Errorf("requests of reports: %v", got)
	}
}

// followHistory starts a driver with a history and clients.
func followHistory(t *testing.T, reports *fakeDenials) (*logged, *drivertest.Table, *History) {
	t.Helper()
	table, v := drivertest.NewTable(t), &driver.View{}
	f := &logged{Denied: NewDenied(v), Log: NewLog(v, nil)}
	h := NewHistory(f.Denied)
	b := &drivertest.Backend{DenialsIs: reports}
	b.NameIs, b.StageIs = "fake", table.Stage()
	f.Fixture = moduletest.Start(t, driver.Config{Stages: []backend.Stage{table.Stage()}, Backend: b}, v, h.Module())
	f.Attach("a", "10.10.0.5")
	f.Begin(t, drivertest.PodOn("a", "node1"))
	return f, table, h
}

func (h *History) packets(t *testing.T) (n uint64) {
	t.Helper()
	all, err := h.DropHistory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all.Minutes {
		for _, f := range m.Flows {
			n += f.Packets
		}
	}
	return n
}

func (h *History) since(t *testing.T) time.Time {
	t.Helper()
	all, err := h.DropHistory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all.From
}

// TestHistoryAfterFailure: a client that takes nothing keeps no dead session. The history begins again, says since when it has no gap, and the reports
// stay on.
func TestHistoryAfterFailure(t *testing.T) {
	reports := &fakeDenials{}
	f, table, h := followHistory(t, reports)
	eventually.True(t, "the history follows", func() bool { return !h.since(t).IsZero() })
	first := h.since(t)
	stuck := observe(f)
	eventually.True(t, "a client follows", stuck.has(begun))
	stuck.stuck.Lock()
	defer func() {
		stuck.stuck.Unlock()
		stuck.cancel()
		<-stuck.done // with the reason
	}()
	reports.report(denied.Report{At: time.Now(), Direction: model.Ingress, Packet: packet(t)})
	eventually.True(t, "a packet", func() bool { return h.packets(t) == 1 })
	reports.set(func() { close(reports.broken) })
	eventually.True(t, "the history begins again", func() bool { return h.since(t).After(first) })
	reports.report(denied.Report{At: time.Now(), Direction: model.Ingress, Packet: packet(t)})
	eventually.True(t, "another packet", func() bool { return h.packets(t) == 2 })
	if got := reportedIn(table); len(got) != 1 || !got[0] {
		t.Errorf("requests of reports: %v", got)
	}
}

// TestHistoryWaits: the history alone may wait for names, in proportion to what they took, and loses nothing then. A client that comes gets nothing
// of before.
func TestHistoryWaits(t *testing.T) {
	reports := &fakeDenials{}
	f, _, h := followHistory(t, reports)
	eventually.True(t, "the history follows", func() bool { return !h.since(t).IsZero() })
	session := f.session
	const many = maxReports - 1
	for range many {
		session.reports <- denied.Report{At: time.Now(), Direction: model.Ingress, Packet: packet(t)}
	}
	o := observe(f)
	eventually.True(t, "a client follows", o.has(begun))
	if n := h.packets(t); n != many {
		eventually.True(t, "no packet is lost", func() bool { return h.packets(t) == many })
	}
	reports.report(denied.Report{At: time.Now(), Direction: model.Egress, Packet: packet(t)})
	eventually.True(t, "the client gets what comes", o.has(func(o *observer) bool { return len(o.seen) > 0 }))
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.seen) != 1 || o.seen[0].Direction != "egress" {
		t.Errorf("the client has %d packets, the first is %+v", len(o.seen), o.seen[0])
	}
}

// TestHistoryOfManyPolicies: a row names some policies and counts the others. Clocks that are set back begin anew.
func TestHistoryOfManyPolicies(t *testing.T) {
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	h := &History{now: func() time.Time { return now }}
	h.begun()
	d := &control.Drop{At: now, By: control.ByIsolation, Policies: make([]string, 1000)}
	if err := h.take(d); err != nil {
		t.Fatal(err)
	}
	all, _ := h.DropHistory(t.Context())
	if row := all.Minutes[0].Flows[0]; len(row.Policies) != historyPolicies || row.MorePolicies != 1000-historyPolicies {
		t.Errorf("%d policies and %d more", len(row.Policies), row.MorePolicies)
	}
	now = now.Add(-24 * time.Hour)
	d.At = now
	if err := h.take(d); err != nil {
		t.Fatal(err)
	}
	if all, _ = h.DropHistory(t.Context()); len(all.Minutes) != 1 || !all.From.Equal(now) || !all.Minutes[0].Begin.Equal(now) {
		t.Errorf("%+v", all)
	}
}
