// Package moduletest runs modules under a driver with stages of memory, for the modules' tests.
package moduletest

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// Fixture is a driver that runs, and what feeds it.
type Fixture struct {
	*driver.Driver
	*drivertest.Inputs
}

// Timing returns the driver's intervals, with short waits after failures.
func Timing() driver.Timing {
	timing := driver.DefaultTiming()
	timing.RetryMin, timing.RetryMax = 5*time.Millisecond, 10*time.Millisecond
	return timing
}

// Start runs a driver with these modules until the test ends. Without stages it has one of memory.
func Start(t *testing.T, cfg driver.Config, v *driver.View, modules ...driver.Module) *Fixture {
	t.Helper()
	f := &Fixture{Inputs: drivertest.NewInputs()}
	if cfg.Stages == nil {
		cfg.Stages = []backend.Stage{drivertest.NewTable(t).Stage()}
	}
	if cfg.Backend == nil {
		cfg.Backend = &drivertest.Backend{NameIs: "fake"}
	}
	if b, ok := cfg.Backend.(*drivertest.Backend); ok && b.StageIs.Name == "" {
		b.StageIs = cfg.Stages[0]
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Cluster.Node, cfg.Inputs, cfg.Timing = "node1", driver.Inputs{Source: f.Source, Attachments: f.Attachments}, Timing()
	cfg.View, cfg.Modules = v, modules
	f.Driver = driver.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

// Begin makes the driver program its first state.
func (f *Fixture) Begin(t *testing.T, events ...datastore.Event) {
	t.Helper()
	f.AttachmentsSynced()
	f.Source.Send(true, append([]datastore.Event{drivertest.Node("node1", "10.10.0.0/24")}, events...)...)
	f.Programmed(t)
}

// Programmed waits until everything that was sent is programmed.
func (f *Fixture) Programmed(t *testing.T, pods ...model.PodID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	if _, err := f.Sync(ctx, pods); err != nil {
		t.Fatal(err)
	}
}

// Missing returns why the agent is not ready.
func (f *Fixture) Missing(t *testing.T) string {
	t.Helper()
	return strings.Join(f.Ready(t.Context()).Missing, "; ")
}
