package packetlog

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/eventually"
)

// fakeDenials is a dataplane that reports a test's packets.
type fakeDenials struct {
	mu      sync.Mutex
	check   error
	refused error
	skipped uint64
	got     func(denied.Report)
	// listeners counts those that listen, broken ends them.
	listeners int
	broken    chan struct{}
}

// Check implements Denials.
func (f *fakeDenials) Check(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.check
}

// Listen implements Denials.
func (f *fakeDenials) Listen(ctx context.Context, got func(denied.Report)) (<-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = got
	f.listeners++
	f.broken = make(chan struct{})
	broken, ended := f.broken, make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
		case <-broken:
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.listeners--
	}()
	return ended, nil
}

// Skipped implements Denials.
func (f *fakeDenials) Skipped(context.Context) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.skipped, nil
}

// Refused implements Denials.
func (f *fakeDenials) Refused() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

func (f *fakeDenials) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeDenials) report(r denied.Report) {
	f.mu.Lock()
	got := f.got
	f.mu.Unlock()
	got(r)
}

// observer is a follower as the control socket is one.
type observer struct {
	cancel context.CancelFunc
	done   chan error
	mu     sync.Mutex
	seen   []control.Drop
	begun  bool
	// stuck keeps the observer from taking anything while it is locked.
	stuck sync.Mutex
}

func observe(f *logged) *observer {
	ctx, cancel := context.WithCancel(context.Background())
	o := &observer{cancel: cancel, done: make(chan error, 1)}
	go func() {
		o.done <- f.Drops(ctx, time.Hour, func(d *control.Drop) error {
			o.stuck.Lock()
			defer o.stuck.Unlock()
			o.mu.Lock()
			defer o.mu.Unlock()
			if d == nil {
				o.begun = true
			} else {
				o.seen = append(o.seen, *d)
			}
			return nil
		})
	}()
	return o
}

func (o *observer) has(is func(o *observer) bool) func() bool {
	return func() bool { o.mu.Lock(); defer o.mu.Unlock(); return is(o) }
}

func (o *observer) end(t *testing.T) {
	t.Helper()
	o.cancel()
	if err := <-o.done; err != nil {
		t.Errorf("a follower that has gone: %v", err)
	}
}

func begun(o *observer) bool { return o.begun }

// reportedIn returns the DenialsUpdates of the managers, in order.
func reportedIn(f *drivertest.Table) []bool {
	var all []bool
	for _, u := range f.Received() {
		if u, ok := u.(model.DenialsUpdate); ok {
			all = append(all, u.Reported)
		}
	}
	return all
}

// packet is one from 10.10.0.7 to 10.10.0.5, udp/53.
func packet(t *testing.T) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll("4500001c 00000000 40110000 0a0a0007 0a0a0005 9c400035 00080000", " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// logged is a driver with both streams.
type logged struct {
	*moduletest.Fixture
	*Denied
	*Log
}

// start runs a driver with both streams and one stage. w gets the log.
func start(t *testing.T, stage backend.Stage, b *drivertest.Backend, w io.Writer) *logged {
	t.Helper()
	v := &driver.View{}
	f := &logged{Denied: NewDenied(v), Log: NewLog(v, w)}
	b.NameIs, b.StageIs = "fake", stage
	f.Fixture = moduletest.Start(t, driver.Config{Stages: []backend.Stage{stage}, Backend: b}, v, f.Log.Module())
	return f
}

func startReporting(t *testing.T) (*logged, *drivertest.Table, *fakeDenials) {
	t.Helper()
	table, reports := drivertest.NewTable(t), &fakeDenials{}
	f := start(t, table.Stage(), &drivertest.Backend{DenialsIs: reports}, nil)
	f.Attach("a", "10.10.0.5")
	f.Begin(t, drivertest.PodOn("a", "node1"))
	return f, table, reports
}

// TestFollowersShareReports: the first one has the dataplane report, the last one has
// it cease to.
func TestFollowersShareReports(t *testing.T) {
	f, table, reports := startReporting(t)
	one := observe(f)
	eventually.True(t, "the first follower is served", one.has(begun))
	two := observe(f)
	eventually.True(t, "the second follower is served", two.has(begun))
	if got := reportedIn(table); !slices.Equal(got, []bool{true}) {
		t.Fatalf("requests of reports: %v", got)
	}
	reports.report(denied.Report{At: time.Unix(7, 0), Direction: model.Ingress, Packet: packet(t)})
	for _, o := range []*observer{one, two} {
		eventually.True(t, "a drop is reported", o.has(func(o *observer) bool { return len(o.seen) == 1 }))
		d := o.seen[0]
		if d.To.Pod != "x/a" || d.From.Address != netip.MustParseAddr("10.10.0.7") || d.PortText() != "udp/53" || d.Direction != "ingress" {
			t.Errorf("%+v", d)
		}
	}
	one.end(t)
	reports.report(denied.Report{Direction: model.Egress, Packet: packet(t)})
	eventually.True(t, "the other one is served still", two.has(func(o *observer) bool { return len(o.seen) == 2 }))
	two.end(t)
	if got := reportedIn(table); !slices.Equal(got, []bool{true, false}) {
		t.Errorf("requests of reports: %v", got)
	}
	reports.set(func() {
		if reports.listeners != 0 {
			t.Error("somebody listens still")
		}
	})
	again := observe(f)
	eventually.True(t, "another follower is served", again.has(begun))
	again.end(t)
}

// TestWhatCannotBeFollowed: the client gets the reason, and reports stay off.
func TestWhatCannotBeFollowed(t *testing.T) {
	f, table, reports := startReporting(t)
	fails := func(want string) {
		t.Helper()
		o := observe(f)
		defer o.cancel()
		select {
		case err := <-o.done:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		case <-time.After(eventually.Patience):
			t.Errorf("no end, want %q", want)
		}
	}
	reports.set(func() { reports.check = errors.New("no nfnetlink_log") })
	fails("cannot be followed here: no nfnetlink_log")
	if got := reportedIn(table); len(got) != 0 {
		t.Errorf("requests of reports: %v", got)
	}
	reports.set(func() { reports.check, reports.refused = nil, errors.New("no meters") })
	fails("no meters")
	if got := reportedIn(table); !slices.Equal(got, []bool{true, false}) {
		t.Errorf("requests of reports: %v", got)
	}
	reports.set(func() { reports.refused = nil })
	o := observe(f)
	eventually.True(t, "it works after that", o.has(begun))
	reports.set(func() { close(reports.broken) })
	if err := <-o.done; err == nil || !strings.Contains(err.Error(), "does not report denied packets any more") {
		t.Errorf("%v", err)
	}
	o = observe(f)
	eventually.True(t, "a client follows again", o.has(begun))
	reports.set(func() { reports.refused = errors.New("the meter has gone") })
	if err := <-o.done; err == nil || !strings.Contains(err.Error(), "the meter has gone") {
		t.Errorf("%v", err)
	}
	eventually.True(t, "nothing reports then", func() bool { got := reportedIn(table); return !got[len(got)-1] })

	none := start(t, drivertest.NewTable(t).Stage(), &drivertest.Backend{}, nil)
	if err := none.Drops(t.Context(), time.Hour, nil); err == nil || !strings.Contains(err.Error(), "has not programmed anything yet") {
		t.Errorf("%v", err)
	}
}

// TestNotShown: reports that are lost, that the dataplane left out, and for which a follower
// is too slow, are counted.
func TestNotShown(t *testing.T) {
	f, _, reports := startReporting(t)
	o := observe(f)
	eventually.True(t, "the follower is served", o.has(begun))
	missing := func(o *observer) (n uint64) {
		for _, d := range o.seen {
			n += d.NotShown
		}
		return n
	}
	reports.report(denied.Report{Direction: model.Ingress, Packet: packet(t), Lost: 3})
	eventually.True(t, "lost reports are counted", o.has(func(o *observer) bool { return missing(o) == 3 }))
	reports.set(func() { reports.skipped = 1000 })
	for range rules.ReportsPerSecond {
		reports.report(denied.Report{Direction: model.Ingress, Packet: packet(t)})
	}
	eventually.True(t, "reports that the dataplane left out are counted", o.has(func(o *observer) bool { return missing(o) == 1003 }))

	o.stuck.Lock()
	const flood = 3 * maxWaiting
	for range flood {
		reports.report(denied.Report{Direction: model.Ingress, Packet: packet(t)})
		time.Sleep(10 * time.Microsecond)
	}
	eventually.True(t, "it is noted that the follower is slow", func() bool {
		f.Denied.stream.mu.Lock()
		defer f.Denied.stream.mu.Unlock()
		for follower := range f.Denied.stream.followers {
			return follower.missed > 0
		}
		return false
	})
	o.stuck.Unlock()
	eventually.True(t, "all are shown or counted", o.has(func(o *observer) bool {
		shown := 0
		for _, d := range o.seen {
			if d.NotShown == 0 {
				shown++
			}
		}
		return shown+int(missing(o)) == 1+rules.ReportsPerSecond+flood+1003
	}))
	o.end(t)
}

// TestClosedPodsSaySo: drops of an unknown pod, or of a pod that a quarantined object closes,
// have the reason, in the closed direction only.
func TestClosedPodsSaySo(t *testing.T) {
	f, table, reports := startReporting(t)
	f.Attach("unknown", "10.10.0.7")
	table.Set(func() {
		table.Refused = []tables.Refusal{{Object: policyflows.Object, Name: "x/p", Rule: "ingress", Reason: "no such meter", Closed: []string{"x/a"}}}
	})
	o := observe(f)
	eventually.True(t, "the follower is served", o.has(begun))
	for _, d := range model.Directions() {
		reports.report(denied.Report{Direction: d, Packet: packet(t)}) // from x/unknown to x/a
	}
	eventually.True(t, "both are reported", o.has(func(o *observer) bool { return len(o.seen) == 2 }))
	for i, want := range []string{"x/p is quarantined: no such meter", cluster.UnknownPod} {
		if d := o.seen[i]; d.By != control.ByClosed || d.Reason != want {
			t.Errorf("%+v, want the reason %q", d, want)
		}
	}
	reports.report(denied.Report{Direction: model.Egress, Packet: bytes.Replace(packet(t), []byte{10, 10, 0, 7}, []byte{10, 10, 0, 5}, 1)})
	eventually.True(t, "another one is reported", o.has(func(o *observer) bool { return len(o.seen) == 3 }))
	if d := o.seen[2]; d.By == control.ByClosed {
		t.Errorf("%+v, though egress is not closed", d)
	}
	o.end(t)
}

// TestDropsOfServices: a packet that the table of Services drops has the reason, and the Service of the address or of the node port.
func TestDropsOfServices(t *testing.T) {
	f, _, reports := startReporting(t)
	o := observe(f)
	defer o.end(t)
	eventually.True(t, "the follower is served", o.has(begun))
	for i, c := range []struct {
		chain, by string
		frontend  model.Frontend
		protocol  model.Protocol
		name      string
	}{
		{rules.ChainServiceRefused, control.ByNoEndpoint, model.Frontend{Addr: netip.MustParseAddr("10.10.0.5"), Port: 53}, model.UDP, "shop/a:53/udp"},
		{rules.ChainServiceSilent, control.ByNoLocalEndpoint, model.Frontend{Kind: model.NodePort, Addr: netip.IPv4Unspecified(), Port: 53}, model.UDP, "shop/a:53/udp"},
		{rules.ChainServiceNoPort, control.ByNoPort, model.Frontend{Addr: netip.MustParseAddr("10.10.0.5"), Port: 54}, model.UDP, "shop/a"},
		{rules.ChainServiceBarred, control.BySourceRanges, model.Frontend{Addr: netip.MustParseAddr("10.10.0.5"), Port: 53}, model.TCP, "shop/a"},
	} {
		id := model.ServicePortID{Namespace: "shop", Name: "a", Protocol: c.protocol, Port: 53}
		if err := f.Denied.view.Do(t.Context(), func() {
			f.Denied.view.Update(model.ServicePortUpdate{Port: &model.ServicePort{ID: id, Frontends: []model.Frontend{c.frontend}}})
		}); err != nil {
			t.Fatal(err)
		}
		reports.report(denied.Report{Direction: model.Egress, Service: c.chain, Packet: packet(t)})
		eventually.True(t, "a drop is reported", o.has(func(o *observer) bool { return len(o.seen) == i+1 }))
		if d := o.seen[i]; d.By != c.by || d.Service != c.name {
			t.Errorf("%+v", d)
		}
		if err := f.Denied.view.Do(t.Context(), func() { f.Denied.view.Update(model.ServicePortRemove{ID: id}) }); err != nil {
			t.Fatal(err)
		}
	}
}
