package driver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/eventually"
)

// arriving starts a driver with the backend "mine". The backend finds objects of another
// backend at the other enforcement point, or none.
func arriving(t *testing.T, at backend.Place, found bool, prepare func(*handover.Startup, *fakeMigration)) (*fixture, *fakeMigration, *handover.Startup) {
	t.Helper()
	h := &history{}
	mine := &fakeBackend{name: "mine", history: h}
	c := &fakeMigration{history: h, fails: map[string]int{}, wanted: at.Mode(), mode: (1 - at).Mode()}
	a := &handover.Startup{
		Place: at, Migration: c, Log: slog.New(slog.DiscardHandler),
		Left:   func(context.Context) (bool, error) { return found, c.step("look") },
		Remove: func(context.Context) error { return c.step("remove others") },
	}
	if prepare != nil {
		prepare(a, c)
	}
	decides := mine.backend()
	decides.PlaceIs = at
	f := startWith(t, Config{Backend: decides, Handover: handover.Config{Migration: c}, Stages: []backend.Stage{
		a.Before(), decides.StageIs, a.Between(),
		{Name: backend.ForwardingStage, Apply: func(ctx context.Context) (backend.Applied, error) {
			r, err := c.forward(ctx)
			if err == nil {
				a.Leads()
			}
			return r, err
		}},
		a.After(),
	}})
	f.begin(t)
	return f, c, a
}

func TestStartupHandoverAfterAnotherBackend(t *testing.T) {
	for _, at := range []backend.Place{backend.InKernel, backend.InSwitch} {
		t.Run(at.String(), func(t *testing.T) {
			f, c, _ := arriving(t, at, true, nil)
			carry := "carry to " + at.String()
			want := []string{"look", carry, "mine applies", carry, leadBy(at.Mode()), "settle", carry, "remove others"}
			if got := c.history.all(); !slices.Equal(got[:min(len(got), len(want))], want) {
				t.Errorf("history %q, want %q", got, want)
			}
			eventually.True(t, "the stages of the start have left", func() bool { return len(f.Status().Writes) == 2 })
		})
	}
}

func TestStartupHandoverAfterNothing(t *testing.T) {
	_, c, _ := arriving(t, backend.InSwitch, false, nil)
	want := []string{"look", "mine applies", leadBy(pipeline.Full), "remove others"}
	if got := c.history.all(); !slices.Equal(got, want) {
		t.Errorf("history %q, want %q", got, want)
	}
}

// Nothing is removed that still judges packets.
func TestStartupHandoverWaitsForTheForwardingFlows(t *testing.T) {
	_, c, _ := arriving(t, backend.InKernel, true, func(_ *handover.Startup, c *fakeMigration) { c.fails[leadBy(pipeline.Steer)] = 3 })
	got := c.history.all()
	inOrder(t, got, leadBy(pipeline.Steer), leadBy(pipeline.Steer), leadBy(pipeline.Steer), leadBy(pipeline.Steer), "settle", "carry to kernel", "remove others")
	if slices.Index(got, "remove others") < slices.Index(got, "settle") {
		t.Errorf("history %q", got)
	}
}

// Connections are tried to be carried, but policy does not wait for ever.
func TestStartupHandoverGoesOnInTheEnd(t *testing.T) {
	for _, step := range []string{"look", "carry to kernel", "settle"} {
		t.Run(step, func(t *testing.T) {
			log := &drivertest.LogBuffer{}
			f, c, _ := arriving(t, backend.InKernel, true, func(a *handover.Startup, c *fakeMigration) {
				c.fails[step], a.Log = 1000, log.Logger()
			})
			eventually.True(t, "others are removed", func() bool { return slices.Contains(c.history.all(), "remove others") })
			eventually.True(t, "the agent is ready", func() bool { return missing(t, f) == "" })
			if c.leads() != pipeline.Steer || len(log.Lines("connections of the backend that was in force before may be lost")) == 0 {
				t.Errorf("packets are led by %s; log %q", c.leads(), log.Lines(""))
			}
		})
	}
}

// Pods do not wait for a full table of connections to become empty: each step tries once.
func TestStartupHandoverWithFullTable(t *testing.T) {
	log := &drivertest.LogBuffer{}
	f, c, _ := arriving(t, backend.InKernel, true, func(a *handover.Startup, c *fakeMigration) {
		c.fails["carry to kernel"], c.full, a.Log = 1000, true, log.Logger()
	})
	want := []string{"look", "carry to kernel", "mine applies", "carry to kernel", leadBy(pipeline.Steer), "remove others"}
	if got := c.history.all(); !slices.Equal(got[:min(len(got), len(want))], want) {
		t.Errorf("history %q, want %q", got, want)
	}
	eventually.True(t, "the agent is ready", func() bool { return missing(t, f) == "" })
	if n := len(log.Lines("may be lost")); n != 1 {
		t.Errorf("%d lines of the log about the full table", n)
	}
}

// While connections cannot be carried, packets are not led elsewhere, and the
// backend cannot be changed.
func TestStartupHandoverHoldsForwardingBack(t *testing.T) {
	h := &history{}
	c := &fakeMigration{history: h, fails: map[string]int{"carry to switch": 2}}
	a := &handover.Startup{
		Place: backend.InSwitch, Migration: c, Log: slog.New(slog.DiscardHandler),
		Left: func(context.Context) (bool, error) { return true, nil },
	}
	for _, stage := range []backend.Stage{a.Before(), a.Between()} {
		if _, err := stage.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot carry") {
			t.Errorf("%s: %v", stage.Name, err)
		}
	}
	a = &handover.Startup{Place: a.Place, Migration: a.Migration, Log: a.Log}
	a.Left = func(context.Context) (bool, error) { return false, errors.New("busy") }
	if _, err := a.Before().Run(t.Context()); err == nil {
		t.Error("a look that failed was believed")
	}
	if _, err := a.Between().Run(t.Context()); err == nil || !a.Between().Required {
		t.Errorf("forwarding does not wait for the look: %v", err)
	}
}
