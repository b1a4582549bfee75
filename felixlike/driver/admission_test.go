package driver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/test/eventually"
)

// later10s moves the clock of trials.
func later10s(t *testing.T, f *fixture) {
	t.Helper()
	if f.trials.IsZero() {
		f.trials = time.Now()
	}
	f.trials = f.trials.Add(10 * time.Second)
	at := f.trials
	if err := f.queue.ask(t.Context(), func() { f.scheduler.admission.SetClock(func() time.Time { return at }) }); err != nil {
		t.Fatal(err)
	}
}

// An apply misses its deadline because of one of several new policies. That one is closed
// and named. All others are in force, and a changed one is never without rules. When the
// deadline is not missed any more, the policy comes back.
func TestMissedDeadlineIsTheRefusalOfItsPolicy(t *testing.T) {
	log := &drivertest.LogBuffer{}
	f, table := startSlow(t, log, ruled("changed", "b", 1, 1), webPolicy())
	table.setSlow("networkpolicy/x/evil")
	f.Source.Send(true, ruled("evil", "a", 3, 1), ruled("changed", "b", 2, 1), ruled("new", "b", 4, 1))
	eventually.True(t, "one policy is quarantined", func() bool { return len(f.Status().Quarantined) == 1 })
	q := f.Status().Quarantined[0]
	if len(q.Owners) != 1 || q.Owners[0].String() != "networkpolicy/x/evil" || !slices.Equal(q.Pods, []string{"x/a"}) || !strings.Contains(q.Reason, "not done within") {
		t.Errorf("%+v", q)
	}
	if err := programmed(t, f, podA); err == nil || !strings.Contains(err.Error(), "networkpolicy/x/evil is quarantined") {
		t.Errorf("pod a: %v", err)
	}
	if err := programmed(t, f, podB); err != nil {
		t.Errorf("pod b: %v", err)
	}
	if got, want := table.programmed(), (map[string]int{"networkpolicy/x/evil": 0, "networkpolicy/x/changed": 2, "networkpolicy/x/new": 4, "networkpolicy/x/web": 1}); !maps.Equal(got, want) {
		t.Errorf("programmed %v, want %v", got, want)
	}
	notices, err := f.Notices(t.Context())
	if err != nil || !slices.ContainsFunc(notices, func(n datastore.Notice) bool { return n.Kind == cluster.Quarantined && n.Object.Name == "evil" }) {
		t.Errorf("notices %+v, %v", notices, err)
	}
	table.mu.Lock()
	for _, programmed := range table.applies[1:] {
		if programmed["networkpolicy/x/changed"] == 0 || programmed["networkpolicy/x/web"] == 0 {
			t.Errorf("programmed meanwhile: %v", programmed)
		}
	}
	table.mu.Unlock()
	// It is tried again, and is still slow; the second wait is twice as long.
	later10s(t, f)
	eventually.True(t, "it is tried again", func() bool { q := f.Status().Quarantined; return len(q) == 1 && q[0].Attempts == 2 })
	table.setSlow()
	later10s(t, f)
	later10s(t, f)
	eventually.True(t, "the policy comes back", func() bool { return len(f.Status().Quarantined) == 0 })
	if err := programmed(t, f, podA); err != nil {
		t.Error(err)
	}
	if got := table.programmed()["networkpolicy/x/evil"]; got != 3 {
		t.Errorf("programmed with %d rules", got)
	}
	if n := len(log.Lines("an object is quarantined")); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// A policy that was refused is tried at once when it becomes smaller.
func TestChangedPolicyIsTriedAtOnce(t *testing.T) {
	f, table := startSlow(t, &drivertest.LogBuffer{})
	table.setSlow("networkpolicy/x/evil")
	f.Source.Send(true, ruled("evil", "a", 3, 1))
	eventually.True(t, "it is quarantined", func() bool { return len(f.Status().Quarantined) == 1 })
	table.setSlow()
	f.Source.Send(true, ruled("evil", "a", 2, 1))
	eventually.True(t, "it comes back", func() bool {
		return len(f.Status().Quarantined) == 0 && table.programmed()["networkpolicy/x/evil"] == 2
	})
	table.setSlow("networkpolicy/x/evil")
	f.Source.Send(true, ruled("evil", "a", 3, 1))
	eventually.True(t, "it is quarantined", func() bool { return len(f.Status().Quarantined) == 1 })
	f.Source.Send(true, datastore.NetworkPolicyDeleted{Namespace: "x", Name: "evil"})
	eventually.True(t, "it is forgotten", func() bool {
		_, there := table.programmed()["networkpolicy/x/evil"]
		return len(f.Status().Quarantined) == 0 && !there
	})
}

// A machine that misses every deadline for a while refuses no policy.
func TestBusyMachineRefusesNoPolicy(t *testing.T) {
	log := &drivertest.LogBuffer{}
	f, table := startSlow(t, log, ruled("changed", "b", 1, 1))
	table.setSlow("*")
	f.Source.Send(true, ruled("new", "a", 3, 1), ruled("changed", "b", 2, 1))
	eventually.True(t, "applies fail", func() bool { return len(log.Lines("programming the dataplane failed")) > 4 })
	table.setSlow()
	if err := programmed(t, f, podA, podB); err != nil {
		t.Fatal(err)
	}
	if got, want := table.programmed(), (map[string]int{"networkpolicy/x/new": 3, "networkpolicy/x/changed": 2}); !maps.Equal(got, want) {
		t.Errorf("programmed %v, want %v", got, want)
	}
	if found := log.Lines("an object is quarantined"); len(found) > 0 {
		t.Errorf("%v", found)
	}
}

// Large policies are programmed one at a time, and small ones do not wait for all of them.
func TestLargePoliciesTakeTurns(t *testing.T) {
	f, table := startSlow(t, &drivertest.LogBuffer{})
	var events []datastore.Event
	for i := range 8 {
		events = append(events, ruled(fmt.Sprint("large-", i), "a", 1000, 10))
	}
	f.Source.Send(true, events...)
	f.Source.Send(true, ruled("small", "b", 2, 1))
	if err := programmed(t, f, podA, podB); err != nil {
		t.Fatal(err)
	}
	wantTurns(t, table, 8)
	small := -1
	table.mu.Lock()
	large := func(programmed map[string]int) (n int) {
		for name, count := range programmed {
			if strings.HasPrefix(name, "networkpolicy/x/large") && count == 1000 {
				n++
			}
		}
		return n
	}
	for i, programmed := range table.applies {
		if small < 0 && programmed["networkpolicy/x/small"] == 2 {
			small = i
		}
	}
	if n := large(table.applies[small]); n > 2 {
		t.Errorf("the small policy was in force after %d large ones", n)
	}
	table.applies = table.applies[:1]
	table.mu.Unlock()
	// Changed ones keep their rules until their turn; so do deleted ones.
	for i := range events {
		events[i] = ruled(fmt.Sprint("large-", i), "a", 999, 10)
	}
	f.Source.Send(true, events...)
	if err := programmed(t, f, podA); err != nil {
		t.Fatal(err)
	}
	for i := range events {
		events[i] = datastore.NetworkPolicyDeleted{Namespace: "x", Name: fmt.Sprint("large-", i)}
	}
	f.Source.Send(true, events...)
	eventually.True(t, "all are deleted", func() bool { return len(table.programmed()) == 1 })
	table.mu.Lock()
	defer table.mu.Unlock()
	for _, programmed := range table.applies[1:] {
		for name, count := range programmed {
			if count == 0 {
				t.Errorf("%s had no rules for a while", name)
			}
		}
	}
}

// wantTurns fails if an apply has put more than one large policy in force.
func wantTurns(t *testing.T, table *slowTable, want int) {
	t.Helper()
	table.mu.Lock()
	defer table.mu.Unlock()
	before := 0
	for _, programmed := range table.applies {
		now := 0
		for _, count := range programmed {
			if count == 1000 {
				now++
			}
		}
		if now > before+1 {
			t.Errorf("one apply has put %d large policies in force", now-before)
		}
		before = now
	}
	if before != want {
		t.Errorf("%d large policies are in force, want %d", before, want)
	}
}

// The engine has the rules of a large policy only where it applies. When a label makes many
// of them apply, they take turns.
func TestLargePoliciesElsewhere(t *testing.T) {
	f, table := startSlow(t, &drivertest.LogBuffer{})
	var events []datastore.Event
	for i := range 5 {
		events = append(events, ruled(fmt.Sprint("large-", i), "c", 1000, 10))
	}
	f.Source.Send(true, events...)
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	renamed := func(label string) datastore.Event {
		e := labelled("a").(datastore.PodSet)
		e.Pod.Labels = map[string]string{"name": label}
		return e
	}
	f.Source.Send(true, renamed("c"))
	if err := programmed(t, f, podA); err != nil {
		t.Fatal(err)
	}
	wantTurns(t, table, 5)
	f.Source.Send(true, renamed("a"))
	if err := programmed(t, f, podA); err != nil {
		t.Fatal(err)
	}
}

// The large policies of a node have a bound. The namespace that has the most of them loses
// its newest ones. They come back when there is room.
func TestSumOfLargePolicies(t *testing.T) {
	f, table := startSlow(t, &drivertest.LogBuffer{})
	var events []datastore.Event
	for i := range 14 {
		events = append(events, ruled(fmt.Sprintf("large-%02d", i), "a", 1000, 10))
	}
	f.Source.Send(true, events...)
	other := ruled("large-zz", "b", 1000, 10)
	f.Source.Send(true, other)
	aside := func() (names []string) {
		for _, q := range f.Status().Quarantined {
			names = append(names, q.Name)
		}
		return names
	}
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(aside(), " "); got != "networkpolicy/x/large-11 networkpolicy/x/large-12 networkpolicy/x/large-13 networkpolicy/x/large-zz" {
		t.Errorf("quarantined: %s", got)
	}
	wantTurns(t, table, 11)
	f.Source.Send(true, datastore.NetworkPolicyDeleted{Namespace: "x", Name: "large-00"}, datastore.NetworkPolicyDeleted{Namespace: "x", Name: "large-01"})
	eventually.True(t, "the oldest come back", func() bool { return strings.Join(aside(), " ") == "networkpolicy/x/large-13 networkpolicy/x/large-zz" })
}

// All policies that the datastore has at the start are programmed together, also if this
// misses its deadline once: they were in force before.
func TestFirstApplyHasLargePolicies(t *testing.T) {
	log := &drivertest.LogBuffer{}
	f, table := newSlow(t, log)
	table.misses = 1
	f.AttachmentsSynced()
	f.Attach("a", "10.10.0.2")
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), labelled("a"), ruled("large-1", "a", 1000, 10), ruled("large-2", "a", 1000, 10))
	if err := programmed(t, f, podA); err != nil {
		t.Fatal(err)
	}
	if n := len(log.Lines("programming the dataplane failed")); n != 1 {
		t.Errorf("%d applies failed", n)
	}
	table.mu.Lock()
	defer table.mu.Unlock()
	for _, programmed := range table.applies {
		for name, count := range programmed {
			if count != 1000 {
				t.Errorf("%s is programmed with %d rules", name, count)
			}
		}
	}
}
