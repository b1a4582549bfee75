package driver

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/test/eventually"
)

// leftoversOf runs a driver of handoverOf whose removal of other backends fails while fails is set.
func leftoversOf(t *testing.T, stages ...backend.Stage) (f *fixture, old, next *fakeBackend, fails *atomic.Bool) {
	t.Helper()
	h := &history{}
	old, next, fails = &fakeBackend{name: "old", history: h}, &fakeBackend{name: "new", history: h}, &atomic.Bool{}
	f = startWith(t, Config{
		Backend: old.backend(), Stages: append([]backend.Stage{old.backend().StageIs}, stages...),
		Handover: handover.Config{
			New: func(string) (backend.Backend, error) { return next.backend(), nil },
			RemoveOthers: func(context.Context, string) error {
				if fails.Load() {
					return errors.New("a foreign rule")
				}
				return nil
			},
		},
	})
	f.begin(t)
	return f, old, next, fails
}

// problemsOf returns the reasons of a status.
func problemsOf(s control.Status) string {
	var all []string
	for _, p := range s.Problems {
		all = append(all, p.Reason)
	}
	return strings.Join(all, "\n")
}

// A change of the backend ends although the old backend cannot be removed. The node is not ready until it is.
func TestBackendThatCannotBeRemoved(t *testing.T) {
	f, old, _, fails := leftoversOf(t)
	old.stuck = errors.New("a foreign rule")
	fails.Store(true)
	if err := f.SetBackend(t.Context(), "new"); err == nil || !strings.Contains(err.Error(), "backend new is in force, but backend old cannot be removed: a foreign rule") {
		t.Errorf("error: %v", err)
	}
	if s := f.Status(); s.Backend != "new" || s.Handover != nil || !strings.Contains(problemsOf(s), "go on dropping packets by old policies") {
		t.Errorf("status: backend %s, handover %+v, problems %q", s.Backend, s.Handover, problemsOf(s))
	}
	if got := missing(t, f); !strings.Contains(got, "a foreign rule") {
		t.Errorf("not ready because of %q", got)
	}
	fails.Store(false)
	eventually.True(t, "the node is ready once they are removed", func() bool { return missing(t, f) == "" })
}

// What the start could not remove makes the node not ready also while a change of the backend is under way, and after it, until it is removed.
func TestLeftoversDuringAChange(t *testing.T) {
	f, _, next, fails := leftoversOf(t, backend.Stage{Name: handover.LeftoversStage, BestEffort: true, StartupOnly: true, Apply: func(context.Context) (backend.Applied, error) {
		return backend.Applied{}, errors.New("a foreign rule")
	}})
	fails.Store(true)
	during := make(chan string, 10)
	next.history.watch("new is read", func() { during <- missing(t, f) }) // the change is verified, the last apply went well
	if err := f.SetBackend(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	if got := <-during; !strings.Contains(got, "a foreign rule") {
		t.Errorf("while the change is under way: not ready because of %q", got)
	}
	if got := missing(t, f); !strings.Contains(got, "a foreign rule") {
		t.Errorf("after the change: not ready because of %q", got)
	}
	fails.Store(false)
	eventually.True(t, "the node is ready once they are removed", func() bool { return missing(t, f) == "" })
}

// A table that the backend in force cannot read in full makes the node not ready. A change to a backend with such a table ends at once where it
// began, and status and an Event say so.
func TestUnreadableTables(t *testing.T) {
	f, old, next, _ := handoverOf(t)
	next.unreadable = []string{"table filter has a foreign rule"}
	if err := f.SetBackend(t.Context(), "new"); err == nil || !strings.Contains(err.Error(), "backend old stays in force: new cannot be programmed: table filter has a foreign rule") {
		t.Errorf("error: %v", err)
	}
	const said = "backend old stays in force"
	if s := f.Status(); s.Backend != "old" || s.Handover != nil || old.removed || !next.removed || !strings.Contains(problemsOf(s), said) {
		t.Errorf("status: backend %s, handover %+v, problems %q; removed: old %v, new %v", s.Backend, s.Handover, problemsOf(s), old.removed, next.removed)
	}
	all, err := f.Notices(t.Context())
	if err != nil || len(all) != 1 || all[0].Kind != noticeUnchanged || !strings.Contains(all[0].Reason, said) {
		t.Errorf("notices: %+v, %v", all, err)
	}
	if got := missing(t, f); got != "" {
		t.Errorf("not ready because of %q", got)
	}
	next.mu.Lock()
	next.unreadable = nil
	next.mu.Unlock()
	if err := f.SetBackend(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	if got := problemsOf(f.Status()); strings.Contains(got, said) {
		t.Errorf("after a change that went well: %q", got)
	}
	next.mu.Lock()
	next.unreadable = []string{"table mangle has a foreign rule"}
	next.mu.Unlock()
	f.Source.Send(true, drivertest.Node("node2", "10.11.0.0/24"))
	eventually.True(t, "the node is not ready", func() bool { return strings.Contains(missing(t, f), "table mangle has a foreign rule") })
	if got := problemsOf(f.Status()); !strings.Contains(got, "table mangle has a foreign rule") {
		t.Errorf("status: %q", got)
	}
}
