package driver

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

type fixture struct {
	*Driver
	*drivertest.Inputs
	view     *View
	recorded *drivertest.Stages
	// trials is the clock of trials, once a test has set it.
	trials time.Time
}

func start(t *testing.T) *fixture {
	t.Helper()
	s := &drivertest.Stages{Fail: map[string]error{}}
	f := startWith(t, Config{Stages: []backend.Stage{s.Stage("netlink", false), s.Stage("nftables", true), s.Stage("openflow", false)}})
	f.recorded = s
	return f
}

// startWith runs a driver of that configuration, which a test feeds.
func startWith(t *testing.T, cfg Config) *fixture {
	t.Helper()
	f := &fixture{Inputs: drivertest.NewInputs()}
	timing := DefaultTiming()
	timing.RetryMin, timing.RetryMax = 5*time.Millisecond, 10*time.Millisecond
	if cfg.RetryMin != 0 {
		timing.RetryMin, timing.RetryMax = cfg.RetryMin, cfg.RetryMax
	}
	if cfg.Resync != 0 {
		timing.Resync = cfg.Resync
	}
	if cfg.ReadyGrace != 0 {
		timing.ReadyGrace = cfg.ReadyGrace
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Backend == nil {
		cfg.Backend = &drivertest.Backend{NameIs: "fake"}
	}
	if b, ok := cfg.Backend.(*drivertest.Backend); ok && b.StageIs.Name == "" {
		b.StageIs = cfg.Stages[0]
	}
	cfg.Cluster.Node, cfg.Inputs, cfg.Timing = "node1", Inputs{Source: f.Source, Attachments: f.Attachments}, timing
	if cfg.View == nil {
		cfg.View = &View{}
	}
	f.view = cfg.View
	f.Driver = New(cfg)
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

// lose says that programmed state may be lost.
func (f *fixture) lose(reason error) {
	f.view.Post(context.Background(), func() { f.view.Lost(reason) })
}

// begin makes the driver program its first state.
func (f *fixture) begin(t *testing.T, events ...datastore.Event) {
	t.Helper()
	f.AttachmentsSynced()
	f.Source.Send(true, append([]datastore.Event{drivertest.Node("node1", "10.10.0.0/24")}, events...)...)
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
}

func programmed(t *testing.T, f *fixture, pods ...model.PodID) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	_, err := f.Sync(ctx, pods)
	return err
}

// notProgrammed asserts that nothing is programmed, after the loop has seen
// all that was sent to it.
func notProgrammed(t *testing.T, f *fixture, why string) {
	t.Helper()
	if s := f.Status(); s.InSync || s.Programmed != 0 {
		t.Errorf("%s: in sync %v, programmed %d", why, s.InSync, s.Programmed)
	}
	if got := f.recorded.Log(); len(got) != 0 {
		t.Errorf("%s: applied %v", why, got)
	}
}

func texts[T any](values []T, text func(T) string) []string {
	var out []string
	for _, v := range values {
		out = append(out, text(v))
	}
	return out
}
