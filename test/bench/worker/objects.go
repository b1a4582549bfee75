package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/test/workloads"
)

// engine measures the policy engine alone with a start-up workload.
func (m *measuring) engine() error {
	if err := m.out.Encode(Line{Begin: m.task.Engine}); err != nil {
		return err
	}
	w, err := workloads.Named(m.task.Engine)
	if err != nil {
		return err
	}
	measured, err := workloads.Measure(w.Scaled(max(1, w.Units/m.task.Profile.EngineDivisor)), m.task.Placement)
	if err != nil {
		return err
	}
	return m.out.Encode(Line{Engine: &measured})
}

// manifests reads the objects of the workload from files, as an agent does.
func (m *measuring) manifests(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return m.measure(ManifestsRead, func(out *Measurement) error {
		source := manifests.New(manifests.Options{Dir: m.task.Manifests, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
		var all datastore.Batch
		begin := time.Now()
		err := source.Run(ctx, func(b datastore.Batch) {
			all = b
			stop()
		})
		out.Wall = []time.Duration{time.Since(begin)}
		switch want := len(m.workload.Events()); {
		case err != nil:
			return err
		case len(all.Problems) > 0:
			return all.Problems[0]
		case !all.InSync || len(all.Events) != want:
			return fmt.Errorf("%d objects were read (all of them: %v), want %d", len(all.Events), all.InSync, want)
		}
		return nil
	})
}
