package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// history records the actions of a test's backends, in order.
type history struct {
	mu     sync.Mutex
	events []string
	// on has functions to call after an action.
	on map[string]func()
}

func (h *history) add(event string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event)
	if do := h.on[event]; do != nil {
		do()
	}
}

func (h *history) watch(event string, do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on = map[string]func(){event: do}
}

func (h *history) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// fakeBackend programs updates into a list.
type fakeBackend struct {
	name    string
	history *history
	// received has the updates since the last apply of desired state, wanted those included in it.
	received, wanted []string

	mu   sync.Mutex
	held []string
	// hold, if not nil, is waited for in each apply that writes.
	hold chan struct{}
	// applyErr fails applies, removeErr the first removal; forgetful loses programmed
	// state.
	applyErr, removeErr error
	forgetful           bool
	// stuck fails all removals. unreadable are the tables that it cannot read.
	stuck      error
	unreadable []string
	stale      bool
	removed    bool
	// onRemove runs when it is removed.
	onRemove func()
}

func (b *fakeBackend) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		b.received = append(b.received, "node "+u.Node.Name)
	case model.EndpointUpdate:
		b.received = append(b.received, "endpoint "+u.Endpoint.ID.String())
	case model.AttachmentUpdate:
		b.received = append(b.received, "attachment "+u.Attachment.Pod.String())
	case model.ServiceCIDRsUpdate:
		if len(u.Prefixes) > 0 {
			b.received = append(b.received, fmt.Sprint("services ", u.Prefixes))
		}
	}
}

func (b *fakeBackend) CompleteDeferredWork() {
	b.wanted = append(b.wanted, b.received...)
	b.received = nil
}

func (b *fakeBackend) apply(context.Context) (backend.Applied, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := b.stale
	b.stale = false
	if b.applyErr != nil {
		b.history.add(b.name + " fails")
		return backend.Applied{}, b.applyErr
	}
	n := len(b.wanted) - len(b.held)
	if hold := b.hold; hold != nil && n > 0 {
		b.history.add(b.name + " waits")
		b.mu.Unlock()
		<-hold
		b.mu.Lock()
	}
	b.held = slices.Clone(b.wanted)
	if b.forgetful && n > 0 {
		b.held = b.held[:len(b.held)-1]
	}
	what := " applies"
	if full {
		what = " is read"
	}
	b.history.add(b.name + what)
	return backend.Applied{Writes: n, Full: full, Unreadable: b.unreadable}, nil
}

func (b *fakeBackend) backend() *drivertest.Backend {
	return &drivertest.Backend{
		NameIs: b.name,
		StageIs: backend.Stage{Name: b.name, Required: true, Managers: drivertest.ManagersOf(b), Apply: b.apply, Invalidate: func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.stale = true
		}},
		RemoveIs: func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.stuck != nil {
				return b.stuck
			}
			if err := b.removeErr; err != nil {
				b.removeErr = nil
				return err
			}
			b.history.add(b.name + " is removed")
			if b.onRemove != nil {
				b.onRemove()
			}
			b.removed = true
			return nil
		},
	}
}

// handoverOf runs a driver with backend "old" that may change to "new".
func handoverOf(t *testing.T) (f *fixture, old, next *fakeBackend, h *history) {
	t.Helper()
	h = &history{}
	old, next = &fakeBackend{name: "old", history: h}, &fakeBackend{name: "new", history: h}
	f = startWith(t, Config{
		Backend: old.backend(), Stages: []backend.Stage{old.backend().StageIs},
		Handover: handover.Config{New: func(name string) (backend.Backend, error) {
			switch name {
			case "old":
				return old.backend(), nil
			case "new":
				return next.backend(), nil
			}
			return nil, errors.New("must be one of old, new")
		}},
	})
	f.begin(t)
	return f, old, next, h
}

func TestBackendChanges(t *testing.T) {
	f, old, next, h := handoverOf(t)
	before := len(h.all())
	if err := f.SetBackend(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	got := h.all()[before:]
	removal := slices.Index(got, "old is removed")
	reading := slices.Index(got, "new is read")
	if !slices.Contains(got, "new applies") || reading < 0 || removal < reading || slices.Contains(got[removal+1:], "old applies") {
		t.Errorf("history %q", got)
	}
	eventually.True(t, "the new backend is read once the old one is gone", func() bool {
		all := h.all()
		return slices.Contains(all[slices.Index(all, "old is removed"):], "new is read")
	})
	if s := f.Status(); s.Backend != "new" || s.Handover != nil {
		t.Errorf("status: backend %q, handover %+v", s.Backend, s.Handover)
	}
	if !old.removed || next.removed || len(next.held) == 0 {
		t.Errorf("old removed %v, new removed %v, new holds %q", old.removed, next.removed, next.held)
	}
	f.Source.Send(true, drivertest.Node("node2", "10.11.0.0/24"))
	eventually.True(t, "the new backend follows", func() bool {
		next.mu.Lock()
		defer next.mu.Unlock()
		return slices.Contains(next.held, "node node2")
	})
	if err := f.SetBackend(t.Context(), "new"); err != nil {
		t.Errorf("a change to what is in force: %v", err)
	}
}

// A change under a stream of updates learns them all.
func TestBackendChangesUnderUpdates(t *testing.T) {
	f, _, next, _ := handoverOf(t)
	done := make(chan error, 1)
	go func() { done <- f.SetBackend(t.Context(), "new") }()
	for i := range 200 {
		f.Source.Send(true, drivertest.Node("n"+string(rune('a'+i%26))+strings.Repeat("x", i/26), "10.11.0.0/24"))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "all nodes are known", func() bool {
		next.mu.Lock()
		defer next.mu.Unlock()
		names := slices.Clone(next.held)
		slices.Sort(names)
		return len(slices.Compact(names)) == 201
	})
}

// Changes that the old backend programmed while the new one was built and read back are in
// the new one before the old one is removed.
func TestBackendTakesOverWhatCameMeanwhile(t *testing.T) {
	f, old, next, h := handoverOf(t)
	var held []string
	old.onRemove = func() {
		next.mu.Lock()
		defer next.mu.Unlock()
		held = slices.Clone(next.held)
	}
	next.hold = make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- f.SetBackend(t.Context(), "new") }()
	eventually.True(t, "the new backend is being built", func() bool { return slices.Contains(h.all(), "new waits") })
	f.Source.Send(true, drivertest.Node("node2", "10.11.0.0/24"))
	eventually.True(t, "the old backend has the change", func() bool {
		old.mu.Lock()
		defer old.mu.Unlock()
		return slices.Contains(old.held, "node node2")
	})
	close(next.hold)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(held, "node node2") {
		t.Errorf("when the old backend went, the new one held %q", held)
	}
}

// A node that the datastore has lost stays in force, also for a new backend.
func TestBackendChangesWithoutTheNode(t *testing.T) {
	f, _, next, _ := handoverOf(t)
	f.Source.Send(true, datastore.NodeDeleted{Name: "node1"})
	if err := f.SetBackend(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	next.mu.Lock()
	defer next.mu.Unlock()
	if !slices.Contains(next.held, "node node1") {
		t.Errorf("the new backend holds %q", next.held)
	}
}

func TestBackendThatFailsIsNotTakenOver(t *testing.T) {
	for what, spoil := range map[string]func(*fakeBackend){
		"cannot be programmed": func(b *fakeBackend) { b.applyErr = errors.New("no such table") },
		"differs":              func(b *fakeBackend) { b.forgetful = true },
	} {
		t.Run(what, func(t *testing.T) {
			f, old, next, _ := handoverOf(t)
			spoil(next)
			err := f.SetBackend(t.Context(), "new")
			if err == nil || !strings.Contains(err.Error(), "old stays in force") {
				t.Fatalf("error %v", err)
			}
			if s := f.Status(); s.Backend != "old" || s.Handover != nil {
				t.Errorf("status: backend %q, handover %+v", s.Backend, s.Handover)
			}
			if old.removed || !next.removed {
				t.Errorf("old removed %v, new removed %v", old.removed, next.removed)
			}
			f.Source.Send(true, drivertest.Node("node2", "10.11.0.0/24"))
			eventually.True(t, "the old backend stays in force", func() bool {
				old.mu.Lock()
				defer old.mu.Unlock()
				return slices.Contains(old.held, "node node2")
			})
		})
	}
}

// The stage that removes leftovers of other backends does not remove the new backend of a
// handover.
func TestBackendChangeEndsTheRemovalOfOthers(t *testing.T) {
	h := &history{}
	old, next := &fakeBackend{name: "old", history: h}, &fakeBackend{name: "new", history: h}
	f := startWith(t, Config{
		Backend: old.backend(), Handover: handover.Config{New: func(string) (backend.Backend, error) { return next.backend(), nil }},
		Stages: []backend.Stage{old.backend().StageIs, {Name: handover.LeftoversStage, BestEffort: true, StartupOnly: true, Apply: func(context.Context) (backend.Applied, error) {
			h.add("others are removed")
			return backend.Applied{}, errors.New("cannot be looked for")
		}}},
	})
	f.begin(t) // what cannot be removed does not keep anything from being programmed
	if e := f.Status().LastApply.Error; !strings.Contains(e, "cannot be looked for") {
		t.Errorf("the last apply says %q", e)
	}
	if err := f.SetBackend(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	if got := h.all(); slices.Contains(got[slices.Index(got, "new applies"):], "others are removed") {
		t.Errorf("history %q", got)
	}
}

func TestBackendIsRemovedInTheEnd(t *testing.T) {
	f, old, _, _ := handoverOf(t)
	old.removeErr = errors.New("busy")
	if err := f.SetBackend(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	if !old.removed {
		t.Error("the old backend was not removed")
	}
}

func TestOneBackendChangeAtATime(t *testing.T) {
	f, _, next, _ := handoverOf(t)
	next.applyErr = errors.New("not yet")
	first := make(chan error, 1)
	go func() { first <- f.SetBackend(t.Context(), "new") }()
	eventually.True(t, "the change is in status", func() bool { s := f.Status(); return s.Handover != nil && s.Handover.To == "new" })
	if err := f.SetBackend(t.Context(), "new"); err == nil || !strings.Contains(err.Error(), "under way") {
		t.Errorf("a second change: %v", err)
	}
	if err := <-first; err == nil {
		t.Error("the failing backend took over")
	}
	if err := f.SetBackend(t.Context(), "nothing"); err == nil || !strings.Contains(err.Error(), "one of old, new") {
		t.Errorf("an unknown backend: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if err := f.SetBackend(ctx, "new"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that does not wait: %v", err)
	}
}
