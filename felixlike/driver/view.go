package driver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// loop is the Loop of a driver.
type loop struct {
	queue     *queue
	cluster   *cluster.Cluster
	stages    *stages
	scheduler *scheduler
	feed      *feed
}

func (v loop) Node() string { return v.cluster.Node() }

func (v loop) Log() *slog.Logger { return v.stages.log() }

func (v loop) Panicked(err error) *slog.Logger { return v.stages.panics.With(v.Log(), err) }

func (v loop) Metrics() *metrics.Metrics { return v.scheduler.metrics }

func (v loop) Post(ctx context.Context, f func()) { v.queue.call(ctx, f) }

func (v loop) Do(ctx context.Context, f func()) error { return v.queue.ask(ctx, f) }

func (v loop) Wait(ctx context.Context, ready func() (bool, error)) error {
	return v.queue.wait(ctx, ready)
}

func (v loop) Stopped() <-chan struct{} { return v.queue.stopped }

func (v loop) Model() *cluster.Model { return v.cluster.Model() }

func (v loop) Policy() *policy.Engine { return v.cluster.Engine() }

func (v loop) Change(change func(*policy.Engine)) {
	change(v.cluster.Engine())
	v.scheduler.pace.want()
	v.feed.flush()
}

func (v loop) SourceSynced() bool { return v.cluster.SourceSynced() }

func (v loop) InSync() bool { return v.cluster.InSync() }

func (v loop) SourceProblems() []model.Problem { return v.cluster.SourceProblems() }

func (v loop) State(id model.PodID) (state, reason string) {
	return v.cluster.Model().State(id, v.stages.quarantine.View().Closed)
}

func (v loop) Backend() backend.Backend { return v.stages.backend }

func (v loop) Changing() bool { return v.stages.handover != nil }

func (v loop) Enforcing() (backend.Backend, error) {
	r := v.stages.decides()
	switch {
	case !v.cluster.InSync() || r == nil || !r.applied:
		return nil, errors.New("the agent has not programmed anything yet")
	case v.Changing():
		return nil, errors.New("the backend is being changed: try again when that is over")
	}
	return v.stages.backend, nil
}

func (v loop) Attempted() uint64 { return v.cluster.Model().Revision() }

func (v loop) Programmed(revision uint64) bool {
	r := v.stages.decides()
	return r != nil && r.programmed >= revision && !r.running
}

func (v loop) Idle() bool {
	s := v.scheduler
	return v.cluster.InSync() && s.programmed > 0 && s.pace.lastApply.Error == "" && !s.pace.dirty &&
		s.cycle == nil && s.stages.running == 0 && s.stages.handover == nil && !s.admission.Pending()
}

func (v loop) LastRun() (at time.Time) {
	for _, r := range v.stages.runners {
		at = later(at, r.started)
	}
	return at
}

func (v loop) Changes() uint64 { return v.stages.changes }

func (v loop) Refused() []tables.Refusal {
	return v.stages.quarantine.Of(v.stages.backend.Stage().Name)
}

func (v loop) Quarantined() int { return len(v.stages.quarantine.View().Quarantined) }

func (v loop) Update(u model.Update) { v.feed.update(u) }

func (v loop) Reread() {
	for _, r := range v.stages.runners {
		r.reread()
		r.distrust()
	}
	v.scheduler.pace.want()
}

func (v loop) Lost(reason error) {
	v.Log().Warn("dataplane connection lost: reading everything again", "reason", reason)
	for _, r := range v.stages.runners {
		r.distrust()
	}
	v.scheduler.invalidate()
}

func (v loop) RetryNow() { v.scheduler.pace.retryNow() }

func (v loop) Begun() bool { return v.cluster.InSync() && v.scheduler.programmed > 0 }
