package driver

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// View is what a Module sees of the driver. It is made before the modules, and bound to the driver by New.
//
// Any goroutine may call Node, Log, Panicked, Metrics, Do, Wait and Stopped. All else belongs to the loop: a module calls it in a function that it
// gives to Do or Wait, or that the loop calls by itself (Module).
type View struct{ d *Driver }

// Node returns the name of this node.
func (v *View) Node() string { return v.d.cfg.Node }

// Log returns the log, which names the backend.
func (v *View) Log() *slog.Logger { return v.d.stages.log() }

// Panicked returns the log for an error that may be a panic: with its stack the first time that it comes from this place.
func (v *View) Panicked(err error) *slog.Logger { return v.d.stages.panics.With(v.Log(), err) }

// Metrics returns the agent's metrics.
func (v *View) Metrics() *metrics.Metrics { return v.d.metrics }

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

// PodAddresses returns the addresses of all pods of the cluster by which policy is enforced.
func (v *View) PodAddresses() map[model.PodID][]netip.Addr { return v.d.cluster.engine.PodAddresses() }

// Snapshot returns the updates that make the policy part of the model.
func (v *View) Snapshot() []model.Update { return v.d.cluster.engine.Snapshot() }

// MembersAt returns the members of a group that contain an address, for a protocol and port.
func (v *View) MembersAt(id model.GroupID, at netip.Addr, p model.Protocol, port uint16) []model.Member {
	return v.d.cluster.engine.MembersAt(id, at, p, port)
}

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
