package policyflows

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/ovstest"
)

// rated is a store with bounded rates, on a switch.
type rated struct {
	*ovstest.Bridge
	t     *testing.T
	conn  *openflow.Conn
	store *Store
	rates *Rates
	apply func() error
}

func newRated(t *testing.T, b *ovstest.Bridge) *rated {
	t.Helper()
	conn, err := openflow.Dial(b.Context(), b.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	table := openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)
	table.Connect(conn)
	s := New(Options{Flows: table, BoundRates: true})
	s.SetFamilies([]model.Family{model.IPv4})
	p := NewProgrammer(s, table)
	r := &rated{Bridge: b, t: t, conn: conn, store: s, rates: NewRates(s)}
	r.apply = func() error {
		// After Connect the table reads the changes that other programs made meanwhile.
		table.Connect(conn)
		_, err := p.Apply(b.Context())
		return err
	}
	return r
}

// pods sets pods at these ports, and only these, and programs them.
func (r *rated) pods(meters Meters, ports ...int) {
	r.t.Helper()
	for name := range maps.Clone(r.store.pods) {
		r.store.RemovePod(name)
	}
	for _, port := range ports {
		r.store.SetPod(testPod(port, model.Applied{}, model.Applied{}))
	}
	r.store.Complete()
	if err := r.rates.Around(r.Context(), meters, r.apply); err != nil {
		r.t.Fatal(err)
	}
}

// bounds checks which pods have a meter, and a flow that leads to it.
func (r *rated) bounds(what string, ports ...int) {
	r.t.Helper()
	found, err := FindRateMeters(r.Context(), r.conn)
	if err != nil {
		r.t.Fatal(err)
	}
	var meters []uint32
	for _, port := range ports {
		meters = append(meters, RateMeter(uint32(port)))
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, meters) {
		r.t.Errorf("%s: meters %v, want %v", what, got, meters)
	}
	var flows, want []string
	for _, line := range strings.Split(r.Run("ovs-ofctl", "-O", "OpenFlow15", "--no-stats", "dump-flows", "unix:"+r.Management(), "table=31"), "\n") {
		if at := strings.Index(line, "actions="); at >= 0 {
			flows = append(flows, line[at:])
		}
	}
	for _, meter := range meters {
		want = append(want, fmt.Sprintf("actions=meter:%d,goto_table:40", meter))
	}
	slices.Sort(flows)
	flows = slices.Compact(flows) // one a family
	if !slices.Equal(flows, want) {
		r.t.Errorf("%s: flows %v, want %v", what, flows, want)
	}
}

// TestRatesFollowPods: pods that come and go, a restart, and a program that deletes all
// meters.
func TestRatesFollowPods(t *testing.T) {
	b := ovstest.NewBridge(t)
	r := newRated(t, b)
	r.pods(r.conn, 3, 4)
	r.bounds("two pods", 3, 4)
	r.pods(r.conn, 4, 5)
	r.bounds("one goes, one comes", 4, 5)

	r = newRated(t, b)
	r.pods(r.conn, 5, 6)
	r.bounds("after a restart", 5, 6)

	b.Run("ovs-ofctl", "-O", "OpenFlow15", "del-meters", "unix:"+b.Management())
	r.pods(r.conn, 5, 6)
	r.bounds("after somebody has deleted them", 5, 6)
	if err := r.rates.Unbounded(); err != nil {
		t.Errorf("said to be unbounded: %v", err)
	}
	r.pods(r.conn)
	r.bounds("without pods")
}

// noMeters is a switch that takes no meters.
type noMeters struct{ *openflow.Conn }

func (noMeters) AddMeters(context.Context, []uint32, uint32) error {
	return errors.New("meter mod failed: out of meters")
}

// TestSwitchWithoutMeters: policy is programmed all the same, and the missing meters are
// reported until there is a switch with meters.
func TestSwitchWithoutMeters(t *testing.T) {
	r := newRated(t, ovstest.NewBridge(t))
	without := noMeters{r.conn}
	r.pods(without, 3, 4)
	r.bounds("without meters")
	if err := r.rates.Unbounded(); err == nil || !strings.Contains(err.Error(), "out of meters") {
		t.Errorf("the reason is %v", err)
	}
	if n := len(r.Installed()); n == 0 {
		t.Error("no flows of policy")
	}
	r.pods(without, 3)
	r.bounds("still without")
	r.pods(r.conn, 3, 4)
	r.bounds("with meters", 3, 4)
	if err := r.rates.Unbounded(); err != nil {
		t.Errorf("still said to be unbounded: %v", err)
	}
}

// TestLimitComesBack: a switch that refuses meters once gets them a minute later, over the
// same connection.
func TestLimitComesBack(t *testing.T) {
	r := newRated(t, ovstest.NewBridge(t))
	now := time.Unix(0, 0)
	r.rates.now = func() time.Time { return now }
	refuses := &noMetersOnce{Conn: r.conn, refusals: 2}
	r.pods(refuses, 3)
	r.bounds("the first refusal")
	for _, wait := range []struct {
		time.Duration
		ports []int
	}{
		{firstRateRetry - time.Second, nil},
		{time.Second, nil}, // the second refusal
		{2*firstRateRetry - time.Second, nil},
		{time.Second, []int{3, 4}},
	} {
		now = now.Add(wait.Duration)
		r.pods(refuses, 3, 4)
		r.bounds(fmt.Sprintf("%v later", now.Sub(time.Unix(0, 0))), wait.ports...)
		if limited := r.rates.Unbounded() == nil; limited != (wait.ports != nil) {
			t.Errorf("after %v said to be limited: %v", now.Sub(time.Unix(0, 0)), limited)
		}
	}
	// The next refusal is a first one again.
	refuses.refusals = 1
	r.pods(refuses, 3, 4, 5)
	if r.rates.Unbounded() == nil {
		t.Error("refused again, and said to be limited")
	}
	now = now.Add(firstRateRetry)
	r.pods(refuses, 3, 4, 5)
	r.bounds("a minute after that", 3, 4, 5)
}

// noMetersOnce is a switch that refuses the first meters.
type noMetersOnce struct {
	*openflow.Conn
	refusals int
}

func (n *noMetersOnce) AddMeters(ctx context.Context, ids []uint32, perSecond uint32) error {
	if n.refusals > 0 {
		n.refusals--
		return errors.New("meter mod failed: out of meters")
	}
	return n.Conn.AddMeters(ctx, ids, perSecond)
}

// TestLeavingPodsHaveNoMeter: two pods that had one address one after the other can leave
// at the same time. Their flows do not contradict each other.
func TestLeavingPodsHaveNoMeter(t *testing.T) {
	r := newRated(t, ovstest.NewBridge(t))
	first, second, third := testPod(3, model.Applied{}, model.Applied{}), testPod(4, model.Applied{}, model.Applied{}), testPod(5, model.Applied{}, model.Applied{})
	second.Addresses = first.Addresses
	first.Open, second.Open = false, false
	for _, p := range []Pod{first, second, third} {
		r.store.SetPod(p)
	}
	r.store.Complete()
	if err := r.rates.Around(r.Context(), r.conn, r.apply); err != nil {
		t.Fatal(err)
	}
	r.bounds("two pods that left", 5)
	if err := r.rates.Unbounded(); err != nil {
		t.Errorf("said to be unbounded: %v", err)
	}
}
