package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// The first apply of an agent misses its deadline because of a large policy, again and again.
// All other policies come into force, and that one is closed and named.
func TestFirstApplyThatNeverEnds(t *testing.T) {
	f, table := newSlow(t, &drivertest.LogBuffer{})
	table.setSlow("networkpolicy/x/evil")
	f.AttachmentsSynced()
	f.Attach("a", "10.10.0.2")
	f.Attach("b", "10.10.0.3")
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), labelled("a"), labelled("b"),
		ruled("evil", "a", 1000, 10), ruled("large", "b", 1000, 10), ruled("small", "b", 2, 1))
	eventually.True(t, "one policy is quarantined", func() bool { return len(f.Status().Quarantined) == 1 })
	if err := programmed(t, f, podB); err != nil {
		t.Fatal(err)
	}
	if got := table.programmed(); got["networkpolicy/x/evil"] != 0 || got["networkpolicy/x/large"] != 1000 || got["networkpolicy/x/small"] != 2 {
		t.Errorf("programmed %v", got)
	}
	table.mu.Lock()
	defer table.mu.Unlock()
	for _, programmed := range table.applies {
		if _, there := programmed["networkpolicy/x/evil"]; !there || programmed["networkpolicy/x/small"] != 2 {
			t.Errorf("programmed meanwhile: %v", programmed)
		}
	}
}

// A slow policy is refused also if its tenant changes it more often than an apply takes. Until
// then, the version that was in force stays so.
func TestRestlessSlowPolicyIsRefused(t *testing.T) {
	for name, ports := range map[string]int{"large": 300, "small": 1} {
		t.Run(name, func(t *testing.T) {
			f, table := startSlow(t, &drivertest.LogBuffer{}, ruled("evil", "a", 2, ports))
			table.setSlow("networkpolicy/x/evil")
			for i, end := 0, time.Now().Add(eventually.Patience); len(f.Status().Quarantined) == 0; i++ {
				if time.Now().After(end) {
					t.Fatal("the policy is not refused")
				}
				f.Source.Send(true, ruled("evil", "a", 3+i%2, ports))
			}
			f.Source.Send(true, ruled("new", "b", 2, 1))
			if err := programmed(t, f, podB); err != nil {
				t.Fatal(err)
			}
			table.mu.Lock()
			defer table.mu.Unlock()
			for _, programmed := range table.applies[1:] {
				if count, there := programmed["networkpolicy/x/evil"]; !there || count != 2 && count != 0 {
					t.Errorf("programmed: %v", programmed)
				}
			}
		})
	}
}

// A policy that changes during the first apply with its rules is programmed in order: no
// older version comes back.
func TestChangeDuringApply(t *testing.T) {
	f, table := startSlow(t, &drivertest.LogBuffer{}, ruled("large", "a", 1000, 10))
	gate := make(chan struct{})
	entered := 0
	table.set(func() { table.gate, entered = gate, table.entered })
	f.Source.Send(true, ruled("large", "a", 999, 10))
	eventually.True(t, "it is programmed", func() bool { return table.count() > entered })
	f.Source.Send(true, ruled("large", "a", 998, 10))
	table.set(func() { table.gate = nil })
	close(gate)
	if err := programmed(t, f, podA); err != nil {
		t.Fatal(err)
	}
	table.mu.Lock()
	defer table.mu.Unlock()
	last := 1000
	for _, programmed := range table.applies[1:] {
		if count := programmed["networkpolicy/x/large"]; count > last || count < 998 {
			t.Errorf("%d rules after %d", count, last)
		} else {
			last = count
		}
	}
	if last != 998 {
		t.Errorf("%d rules in the end", last)
	}
}

func (s *slowTable) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *slowTable) count() (n int) {
	s.set(func() { n = s.entered })
	return n
}

// A large policy is deleted because of which every apply fails. The others are programmed.
func TestDeletedPolicyEndsTheFailure(t *testing.T) {
	deleted := datastore.NetworkPolicyDeleted{Namespace: "x", Name: "evil"}
	check := func(t *testing.T, f *fixture, table *slowTable) {
		t.Helper()
		f.Source.Send(true, deleted, ruled("last", "b", 2, 1))
		eventually.True(t, "the policy is gone", func() bool {
			programmed := table.programmed()
			_, there := programmed["networkpolicy/x/evil"]
			return !there && programmed["networkpolicy/x/last"] == 2
		})
		if err := programmed(t, f, podA, podB); err != nil {
			t.Error(err)
		}
	}
	t.Run("during its first apply", func(t *testing.T) {
		f, table := startSlow(t, &drivertest.LogBuffer{})
		table.setSlow("networkpolicy/x/evil")
		entered := table.count()
		f.Source.Send(true, ruled("evil", "a", 3, 300))
		eventually.True(t, "it is programmed", func() bool { return table.count() > entered })
		check(t, f, table)
	})
	t.Run("later", func(t *testing.T) {
		log := &drivertest.LogBuffer{}
		f, table := startSlow(t, log, ruled("evil", "a", 3, 300))
		table.setSlow("networkpolicy/x/evil")
		f.Source.Send(true, ruled("other", "b", 2, 1))
		eventually.True(t, "applies fail", func() bool { return len(log.Lines("programming the dataplane failed")) > 2 })
		check(t, f, table)
	})
	t.Run("in its turn", func(t *testing.T) {
		log := &drivertest.LogBuffer{}
		f, table := startSlow(t, log, ruled("evil", "a", 3, 300))
		gate := make(chan struct{})
		entered := 0
		table.set(func() { table.gate, entered = gate, table.entered })
		f.Source.Send(true, ruled("other", "b", 2, 1))
		eventually.True(t, "an apply is under way", func() bool { return table.count() > entered })
		// Before the failure is known, the deletion waits for its turn.
		f.Source.Send(true, deleted)
		table.setSlow("networkpolicy/x/evil")
		table.set(func() { table.gate = nil })
		close(gate)
		check(t, f, table)
	})
}

// An update of a refused policy does not have it tried early, unless it got cheaper.
func TestTouchedPolicyIsNotTriedEarly(t *testing.T) {
	f, table := startSlow(t, &drivertest.LogBuffer{})
	table.setSlow("networkpolicy/x/evil")
	f.Source.Send(true, ruled("evil", "a", 8, 1))
	eventually.True(t, "it is quarantined", func() bool { return len(f.Status().Quarantined) == 1 })
	before := table.count()
	for i := range 50 {
		f.Source.Send(true, ruled("evil", "a", 8-i%2, 1), ruled("other", "b", 1+i%2, 1))
		if err := programmed(t, f, podB); err != nil {
			t.Fatal(err)
		}
	}
	if table.count() == before {
		t.Fatal("nothing was programmed")
	}
	if q := f.Status().Quarantined; len(q) != 1 || q[0].Attempts != 1 {
		t.Errorf("quarantined: %+v", q)
	}
}

// A policy of a whole slice has its turn, though cheaper ones wait whenever a cycle begins.
func TestExpensivePolicyHasItsTurn(t *testing.T) {
	table := &slowTable{wanted: map[string]int{}}
	stage := backend.Stage{Name: "nftables", Required: true, Managers: drivertest.ManagersOf(table), Apply: table.apply}
	d := New(Config{
		Cluster: cluster.Config{Node: "node1"}, Log: slog.New(slog.DiscardHandler), Stages: []backend.Stage{stage},
		Backend: &drivertest.Backend{NameIs: "fake", StageIs: stage}, Timing: DefaultTiming(),
	})
	send := func(events ...datastore.Event) { d.feed.onBatch(datastore.Batch{Events: events}) }
	send(drivertest.Node("node1", "10.10.0.0/24"), labelled("a"), labelled("b"))
	d.stages.decides().applied = true
	send(ruled("expensive", "a", 1000, 6))
	rules := func(name string) int {
		return len(d.cluster.Model().Policies[model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: name}].Ingress)
	}
	for i := range 6 {
		send(ruled("cheap", "b", 60+i, 10))
		d.scheduler.admission.Begin()
		d.stages.decides().programmed = d.cluster.Model().Revision()
		d.scheduler.admission.Ended(nil, d.cluster.Model().Revision(), 0)
		if rules("expensive") == 1000 {
			return
		}
	}
	t.Error(fmt.Sprint("it was not programmed, but the cheap one with ", rules("cheap")))
}

// deadlines is a stage that notes how long its applies may take.
type deadlines struct {
	mu     sync.Mutex
	newest time.Duration
	count  int
}

func (d *deadlines) apply(ctx context.Context) (backend.Applied, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, _ := ctx.Deadline()
	d.newest = time.Until(at).Round(time.Second)
	d.count++
	return backend.Applied{}, nil
}

func (d *deadlines) seen() (time.Duration, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.newest, d.count
}

// The short deadline is for changes of policy, and neither for other stages nor for applies
// after a foreign change, which read everything.
func TestShortDeadlineIsForChanges(t *testing.T) {
	var policy, other deadlines
	table := drivertest.NewTable(t)
	stage := table.Stage()
	stage.Timeout, stage.Apply, stage.Watch = time.Minute, policy.apply, table.Watch
	f := startWith(t, Config{
		Stages:  []backend.Stage{stage, {Name: "conntrack", Apply: other.apply, Timeout: 30 * time.Second}},
		Backend: &drivertest.Backend{NameIs: "fake", StageIs: stage},
	})
	f.begin(t, labelled("a"))
	want := func(how string, do func(), want time.Duration) {
		t.Helper()
		_, before := policy.seen()
		do()
		eventually.True(t, how+" is programmed", func() bool { _, n := policy.seen(); return n > before })
		if got, _ := policy.seen(); got != want {
			t.Errorf("%s: policy has %s, want %s", how, got, want)
		}
		if got, _ := other.seen(); got != 30*time.Second {
			t.Errorf("%s: the other stage has %s", how, got)
		}
	}
	change := func() {
		f.Source.Send(true, webPolicy())
		if err := programmed(t, f); err != nil {
			t.Fatal(err)
		}
	}
	want("a change", change, 10*time.Second)
	changed := <-table.Changed
	want("a foreign change", changed, time.Minute)
	want("a change after it", change, 10*time.Second)
	want("a lost connection", func() { f.lose(errors.New("gone")) }, time.Minute)
}
