package driver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// View is what a Module sees of the driver. It is made before the modules, and bound to the driver by New.
//
// Any goroutine may call Node, Log, Panicked, Metrics, Post, Do, Wait and Stopped. All else belongs to the loop: a module calls it in a function that it
// gives to Post, Do or Wait, or that the loop calls by itself (Module).
type View struct{ d *Driver }

// Node returns the name of this node.
func (v *View) Node() string { return v.d.cfg.Node }

// Log returns the log, which names the backend.
func (v *View) Log() *slog.Logger { return v.d.stages.log() }

// Panicked returns the log for an error that may be a panic: with its stack the first time that it comes from this place.
func (v *View) Panicked(err error) *slog.Logger { return v.d.stages.panics.With(v.Log(), err) }

// Metrics returns the agent's metrics.
func (v *View) Metrics() *metrics.Metrics { return v.d.metrics }

// Post hands f to the loop.
func (v *View) Post(ctx context.Context, f func()) { v.d.queue.call(ctx, f) }

// Do runs f in the loop, and returns when it has run.
func (v *View) Do(ctx context.Context, f func()) error { return v.d.queue.ask(ctx, f) }

// Wait waits until ready, which runs in the loop, returns true or an error.
func (v *View) Wait(ctx context.Context, ready func() (bool, error)) error {
	return v.d.queue.wait(ctx, ready)
}

// Stopped is closed when the loop has ended.
func (v *View) Stopped() <-chan struct{} { return v.d.queue.stopped }

// Model returns the model. It must not be changed.
func (v *View) Model() *Model { return v.d.cluster.model }

// Policy returns the policy engine, which answers questions about the model. Only Change changes it.
func (v *View) Policy() *policy.Engine { return v.d.cluster.engine }

// Change changes the policy engine, and hands its updates to the managers.
func (v *View) Change(change func(*policy.Engine)) {
	change(v.d.cluster.engine)
	v.d.scheduler.dirty = true
	v.d.feed.flush()
}

// SourceSynced reports whether the first listing of the datastore is complete, InSync whether all is known that the first apply needs.
func (v *View) SourceSynced() bool { return v.d.cluster.sourceSynced }

// InSync is explained at SourceSynced.
func (v *View) InSync() bool { return v.d.cluster.inSync() }

// SourceProblems returns the problems that the datastore has with objects.
func (v *View) SourceProblems() []model.Problem { return v.d.cluster.problems.source }

// State returns the state of a pod, and the reason if it is closed.
func (v *View) State(id model.PodID) (state, reason string) {
	return v.d.cluster.model.state(id, v.d.stages.quarantine.view().closed)
}

// Backend returns the backend in force.
func (v *View) Backend() backend.Backend { return v.d.stages.backend }

// Changing reports whether the backend is being changed.
func (v *View) Changing() bool { return v.d.stages.handover != nil }

// Enforcing returns the backend that enforces policy now. It fails during a change of the backend, and before the first policy is programmed.
func (v *View) Enforcing() (backend.Backend, error) {
	r := v.d.stages.decides()
	switch {
	case !v.d.cluster.inSync() || r == nil || !r.applied:
		return nil, errors.New("the agent has not programmed anything yet")
	case v.Changing():
		return nil, errors.New("the backend is being changed: try again when that is over")
	}
	return v.d.stages.backend, nil
}

// Attempted returns the revision of the model: the number of its updates.
func (v *View) Attempted() uint64 { return v.d.cluster.model.revision }

// Programmed reports whether the backend in force has the updates up to this revision of the model, and programs nothing now.
func (v *View) Programmed(revision uint64) bool {
	r := v.d.stages.decides()
	return r != nil && r.programmed >= revision && !r.running
}

// Idle reports whether everything is programmed and nothing runs.
func (v *View) Idle() bool {
	s := v.d.scheduler
	return v.d.cluster.inSync() && s.programmed > 0 && s.lastApply.Error == "" && !s.dirty &&
		s.stages.pass == nil && s.stages.running == 0 && s.stages.handover == nil && !s.turns.pending() && !v.d.cluster.tiered.waits()
}

// LastRun returns the start of the newest run of a stage.
func (v *View) LastRun() (at time.Time) {
	for _, r := range v.d.stages.runners {
		at = later(at, r.started)
	}
	return at
}

// Refused returns the quarantined objects of the backend in force.
func (v *View) Refused() []tables.Refusal {
	return v.d.stages.quarantine.refused[v.d.stages.backend.Stage().Name]
}

// Update adds an update to the model.
func (v *View) Update(u model.Update) { v.d.feed.update(u) }

// Reread makes the next pass read everything from kernel and switch.
func (v *View) Reread() {
	for _, r := range v.d.stages.runners {
		r.stale, r.distrusted = true, true
	}
	v.d.scheduler.dirty = true
}
