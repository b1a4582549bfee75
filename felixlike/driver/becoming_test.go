package driver

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/test/eventually"
)

// becomes runs a driver that begins with the backend "old", although "new" is configured.
func becomes(t *testing.T, prepare func(old, next *fakeBackend)) (f *fixture, old, next *fakeBackend) {
	t.Helper()
	h := &history{}
	old, next = &fakeBackend{name: "old", history: h}, &fakeBackend{name: "new", history: h}
	prepare(old, next)
	broken := &fakeBackend{name: "broken", history: h, applyErr: errors.New("no such table either")}
	backends := map[string]*fakeBackend{"old": old, "new": next, "third": {name: "third", history: h}, "broken": broken}
	f = startWith(t, Config{
		Backend: old.backend(), Becomes: "new", Stages: []backend.Stage{old.backend().StageIs},
		Handover: handover.Config{New: func(name string) (backend.Backend, error) {
			if b := backends[name]; b != nil {
				return b.backend(), nil
			}
			return nil, errors.New("must be one of old, new, third, broken")
		}},
	})
	f.begin(t)
	return f, old, next
}

func noSuchTable(_, next *fakeBackend) { next.applyErr = errors.New("no such table") }

// awaitsFailure waits until the agent says that the configured backend is not in force.
func (f *fixture) awaitsFailure(t *testing.T) {
	t.Helper()
	eventually.True(t, "the failure is named", func() bool {
		why := missing(t, f)
		return strings.Contains(why, "the configured backend new is not in force") && strings.Contains(why, "no such table")
	})
}

// An agent that begins with the backend in force changes to the configured one, and is ready after that. Pods can be added all the time.
func TestConfiguredBackendTakesOver(t *testing.T) {
	hold := make(chan struct{})
	f, old, next := becomes(t, func(_, next *fakeBackend) { next.hold = hold })
	eventually.True(t, "the change is under way", func() bool { return f.Status().Handover != nil })
	if why := missing(t, f); !strings.Contains(why, "the change to the configured backend new is under way") {
		t.Errorf("during the change is missing: %q", why)
	}
	if s := f.Status(); s.Configured != "new" {
		t.Errorf("status says that %q is configured", s.Configured)
	}
	if err := f.Available(t.Context()); err != nil {
		t.Errorf("during the change, pods cannot be added: %v", err)
	}
	if all, err := f.Notices(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("Events of a change that works: %v, %v", all, err)
	}
	close(hold)
	eventually.True(t, "the agent is ready", func() bool { return missing(t, f) == "" })
	if s := f.Status(); s.Backend != "new" || s.Configured != "" || s.Handover != nil {
		t.Errorf("backend %q, configured %q, handover %+v", s.Backend, s.Configured, s.Handover)
	}
	old.mu.Lock()
	defer old.mu.Unlock()
	next.mu.Lock()
	defer next.mu.Unlock()
	if !old.removed || len(next.held) == 0 {
		t.Errorf("old removed: %v; new holds %q", old.removed, next.held)
	}
}

// While the configured backend cannot be programmed, the agent says so, and is not ready. A command that succeeds chooses for good.
func TestConfiguredBackendThatFails(t *testing.T) {
	for to, ready := range map[string]bool{"old": true, "third": true, "broken": false, "nosuch": false} {
		t.Run(to, func(t *testing.T) {
			f, _, next := becomes(t, noSuchTable)
			f.awaitsFailure(t)
			if s := f.Status(); s.Backend != "old" || !next.removed {
				t.Errorf("backend %q; new removed: %v", s.Backend, next.removed)
			}
			if err := f.SetBackend(t.Context(), to); (err == nil) != ready {
				t.Errorf("to %s: %v", to, err)
			}
			eventually.True(t, "the agent is ready, if that is in force", func() bool { return (missing(t, f) == "") == ready })
			if s := f.Status(); (s.Configured == "") != ready {
				t.Errorf("after a change to %s is configured: %q", to, s.Configured)
			}
			if !ready {
				f.awaitsFailure(t)
			}
		})
	}
}

// The next try begins later each time, and after packets had been led elsewhere only by a command.
func TestConfiguredBackendIsTriedAgain(t *testing.T) {
	f, _, next := becomes(t, noSuchTable)
	f.awaitsFailure(t)
	next.mu.Lock()
	next.applyErr = nil
	next.mu.Unlock()
	var waits []string
	f.view.Post(t.Context(), func() {
		b := &f.stages.becoming
		waits = append(waits, b.wait.String())
		for range 10 {
			b.ended(b.err, false)
		}
		waits = append(waits, b.wait.String())
		b.ended(b.err, true)
	})
	eventually.True(t, "a command is asked for", func() bool { return strings.Contains(missing(t, f), "is tried again by felixctl backend set") })
	if !slices.Equal(waits, []string{"1m0s", "30m0s"}) {
		t.Errorf("the first and the longest wait are %q", waits)
	}
	f.view.Post(t.Context(), func() { f.stages.becoming.due = f.stages.started })
	eventually.True(t, "the agent is ready", func() bool { return missing(t, f) == "" })
	if s := f.Status(); s.Backend != "new" {
		t.Errorf("backend %q", s.Backend)
	}
}

// If the backend that was found cannot be programmed, the agent has to begin with the configured one.
func TestFoundBackendThatFails(t *testing.T) {
	h := &history{}
	old := &fakeBackend{name: "old", history: h, applyErr: errors.New("too many rules")}
	f := &fixture{Inputs: drivertest.NewInputs(), view: &View{}}
	timing := DefaultTiming()
	timing.RetryMin, timing.RetryMax = 5*time.Millisecond, 10*time.Millisecond
	f.Driver = New(Config{
		Backend: old.backend(), Becomes: "new", Stages: []backend.Stage{old.backend().StageIs}, View: f.view, Log: slog.New(slog.DiscardHandler),
		Cluster: cluster.Config{Node: "node1"}, Inputs: Inputs{Source: f.Source, Attachments: f.Attachments}, Timing: timing,
	})
	ended := make(chan error, 1)
	go func() { ended <- f.Run(t.Context()) }()
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	eventually.True(t, "old fails", func() bool { return slices.Contains(h.all(), "old fails") })
	f.view.Post(t.Context(), func() { f.stages.becoming.failing = time.Now().Add(-2 * giveUpAfter) })
	if err := <-ended; !errors.Is(err, ErrFoundFails) || !strings.Contains(err.Error(), "too many rules") {
		t.Errorf("the driver ended with %v", err)
	}
}
