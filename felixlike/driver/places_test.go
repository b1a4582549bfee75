package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/eventually"
)

// fakeMigration records its calls, and fails on demand.
type fakeMigration struct {
	history *history
	mu      sync.Mutex
	// fails is how often each step fails, by its name in the history; always if it is negative.
	fails map[string]int
	// full makes failures say that the kernel's table is full.
	full bool
	// mode leads packets once the forwarding stage has run.
	wanted, mode pipeline.Mode
}

// leads returns the mode that leads packets.
func (c *fakeMigration) leads() pipeline.Mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mode
}

func (c *fakeMigration) step(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.add(name)
	if c.fails[name] != 0 {
		c.fails[name]-- // forever, if it is below zero
		if c.full {
			return fmt.Errorf("cannot %s: %w", name, conntrack.ErrFull)
		}
		return errors.New("cannot " + name)
	}
	return nil
}

func (c *fakeMigration) Carry(_ context.Context, to backend.Place) error {
	return c.step("carry to " + to.String())
}

func (c *fakeMigration) Steer(mode pipeline.Mode) { c.wanted = mode }

func (c *fakeMigration) Settle(context.Context) error { return c.step("settle") }

func (c *fakeMigration) forward(context.Context) (backend.Applied, error) {
	to := c.wanted
	err := c.step(leadBy(to))
	if err == nil {
		c.mu.Lock()
		c.mode = to
		c.mu.Unlock()
	}
	return backend.Applied{}, err
}

// leadBy is the event of a forwarding stage that leads packets by a mode.
func leadBy(mode pipeline.Mode) string { return "lead by " + mode.String() }

// migrationOf runs a driver with backend "old" in the kernel that may change to
// "new" in the switch, or the other way round.
func migrationOf(t *testing.T, from backend.Place) (f *fixture, old, next *fakeBackend, c *fakeMigration) {
	t.Helper()
	h := &history{}
	old, next = &fakeBackend{name: "old", history: h}, &fakeBackend{name: "new", history: h}
	c = &fakeMigration{history: h, fails: map[string]int{}, wanted: from.Mode()}
	at := func(b *drivertest.Backend, p backend.Place) backend.Backend {
		b.PlaceIs = p
		return b
	}
	f = startWith(t, Config{
		Backend:  at(old.backend(), from),
		Stages:   []backend.Stage{old.backend().StageIs, {Name: backend.ForwardingStage, Apply: c.forward}},
		Handover: handover.Config{New: func(string) (backend.Backend, error) { return at(next.backend(), 1-from), nil }, Migration: c},
	})
	f.begin(t)
	return f, old, next, c
}

// inOrder fails the test unless the events are in the history in this order.
func inOrder(t *testing.T, all []string, events ...string) {
	t.Helper()
	rest := all
	for _, e := range events {
		i := slices.Index(rest, e)
		if i < 0 {
			t.Errorf("no %q where it has its place in %q", e, all)
			return
		}
		rest = rest[i+1:]
	}
}

func TestBackendChangesPlaces(t *testing.T) {
	for _, from := range []backend.Place{backend.InKernel, backend.InSwitch} {
		t.Run("from the "+from.String(), func(t *testing.T) {
			f, _, next, c := migrationOf(t, from)
			before := len(c.history.all())
			if err := f.SetBackend(t.Context(), "new"); err != nil {
				t.Fatal(err)
			}
			to := 1 - from
			carry, way := "carry to "+to.String(), to.Way()
			got := c.history.all()[before:]
			inOrder(t, got, carry, "new applies", "new is read", carry, "old applies", leadBy(way[0]), "settle", leadBy(way[1]), "settle", carry,
				leadBy(way[2]), "settle", carry, "old is removed")
			if i := slices.Index(got, carry); slices.Index(got, "new applies") < i {
				t.Errorf("the new backend met packets before their connections were carried: %q", got)
			}
			if first := slices.Index(got, leadBy(way[0])); slices.Contains(got[first:], leadBy(from.Mode())) {
				t.Errorf("packets were led back: %q", got)
			}
			if c.leads() != to.Mode() || next.removed {
				t.Errorf("packets are led by %s, new removed %v", c.leads(), next.removed)
			}
			if s := f.Status(); s.Backend != "new" || s.Handover != nil {
				t.Errorf("status: backend %q, handover %+v", s.Backend, s.Handover)
			}
		})
	}
}

// A step that fails a few times is retried.
func TestBackendChangesPlacesInTheEnd(t *testing.T) {
	for _, step := range []string{"carry to switch", leadBy(pipeline.BeginsInHost), leadBy(pipeline.Full), "settle"} {
		t.Run(step, func(t *testing.T) {
			f, _, _, c := migrationOf(t, backend.InKernel)
			c.fails[step] = handover.MaxTries - 1
			if err := f.SetBackend(t.Context(), "new"); err != nil {
				t.Fatal(err)
			}
			if c.leads() != pipeline.Full {
				t.Errorf("packets are led by %s", c.leads())
			}
		})
	}
}

// A step that fails every time leaves the old backend in force, with packets and
// connections where it judges them.
func TestBackendThatCannotBeReachedIsNotTakenOver(t *testing.T) {
	back := []string{"carry to kernel", leadBy(pipeline.Steer), "settle", "carry to kernel", "new is removed"}
	for _, c := range []struct {
		step  string
		after []string
	}{
		{"carry to switch", nil},
		{leadBy(pipeline.BeginsInHost), back},
		{leadBy(pipeline.BeginsInSwitch), append([]string{leadBy(pipeline.BeginsInSwitch), leadBy(pipeline.BeginsInHost), "settle"}, back...)},
		{leadBy(pipeline.Full), append([]string{leadBy(pipeline.Full), leadBy(pipeline.BeginsInSwitch), "settle", leadBy(pipeline.BeginsInHost), "settle"}, back...)},
		{"settle", []string{leadBy(pipeline.BeginsInHost), "settle", "carry to kernel", leadBy(pipeline.Steer), "carry to kernel", "new is removed"}},
	} {
		t.Run(c.step, func(t *testing.T) {
			f, old, _, migration := migrationOf(t, backend.InKernel)
			migration.fails[c.step] = -1
			before := len(migration.history.all())
			err := f.SetBackend(t.Context(), "new")
			if err == nil || !strings.Contains(err.Error(), "old stays in force") || !strings.Contains(err.Error(), "cannot "+c.step) {
				t.Fatalf("error %v", err)
			}
			all := migration.history.all()[before:]
			inOrder(t, all, c.after...)
			// No packet is led by a mode that was not tried, as to the new backend that has failed.
			for _, mode := range []pipeline.Mode{pipeline.BeginsInHost, pipeline.BeginsInSwitch, pipeline.Full} {
				if slices.Contains(all, leadBy(mode)) && !slices.Contains(append(c.after, c.step), leadBy(mode)) {
					t.Errorf("packets were led by %s: %q", mode, all)
				}
			}
			if old.removed || migration.leads() != pipeline.Steer || f.Status().Backend != "old" {
				t.Errorf("old removed %v, packets are led by %s", old.removed, migration.leads())
			}
		})
	}
}

// A way back on which a step fails every time ends with the old mode.
func TestBackendChangeWithoutAWayBack(t *testing.T) {
	f, old, _, c := migrationOf(t, backend.InKernel)
	c.fails[leadBy(pipeline.Full)] = -1
	c.history.watch(leadBy(pipeline.Full), func() { c.fails[leadBy(pipeline.BeginsInSwitch)] = -1 })
	if err := f.SetBackend(t.Context(), "new"); err == nil || !strings.Contains(err.Error(), "old stays in force") {
		t.Fatalf("error %v", err)
	}
	if old.removed || c.leads() != pipeline.Steer {
		t.Errorf("old removed %v, packets are led by %s", old.removed, c.leads())
	}
}

// For connections that the kernel's full table does not take, a change is given up at once: the next try finds it
// full too.
func TestBackendChangeWithFullTable(t *testing.T) {
	f, old, _, c := migrationOf(t, backend.InSwitch)
	c.fails["carry to kernel"], c.full = 1000, true
	before := len(c.history.all())
	err := f.SetBackend(t.Context(), "new")
	if err == nil || !strings.Contains(err.Error(), "old stays in force") || !strings.Contains(err.Error(), conntrack.ErrFull.Error()) {
		t.Fatalf("error %v", err)
	}
	tries := 0
	for _, e := range c.history.all()[before:] {
		if e == "carry to kernel" {
			tries++
		}
	}
	if tries != 1 || old.removed || c.leads() != pipeline.Full {
		t.Errorf("%d tries, old removed %v, packets are led by %s", tries, old.removed, c.leads())
	}
}

// A new backend that fails when packets are to be led to it does not keep them
// from being led back.
func TestBackendThatFailsAtTheLastMoment(t *testing.T) {
	f, old, next, c := migrationOf(t, backend.InSwitch)
	c.fails[leadBy(pipeline.Steer)] = 1
	c.history.watch(leadBy(pipeline.Steer), func() {
		next.mu.Lock()
		defer next.mu.Unlock()
		next.applyErr = errors.New("no such table")
	})
	err := f.SetBackend(t.Context(), "new")
	if err == nil || !strings.Contains(err.Error(), "no such table") {
		t.Fatalf("error %v", err)
	}
	if old.removed || !next.removed || c.leads() != pipeline.Full {
		t.Errorf("old removed %v, new removed %v, packets are led by %s", old.removed, next.removed, c.leads())
	}
	f.Source.Send(true, drivertest.Node("node2", "10.11.0.0/24"))
	eventually.True(t, "the old backend goes on", func() bool {
		old.mu.Lock()
		defer old.mu.Unlock()
		return slices.Contains(old.held, "node node2")
	})
}
