package driver

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/admission"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/metrics"
)

// scheduler decides when stages are applied: all in order, in a sync cycle, or one beside the
// cycles. It belongs to the loop.
type scheduler struct {
	cfg       *Config
	cluster   *cluster.Cluster
	stages    *stages
	admission *admission.Queue
	modules   modules
	metrics   *metrics.Metrics

	// cycle is the current cycle, or nil.
	cycle *cycle
	// programmed is the newest revision of the datastore that is programmed.
	programmed uint64
	latency    latency
	pace       pace
}

// cycle is one apply of all stages, in order.
type cycle struct {
	// revision and attempted are the datastore's revision and the model's revision that
	// the cycle programs.
	revision, attempted uint64
	started             time.Time
	// at is the index of the running or the next stage.
	at int
	// succeeded are called if the cycle succeeds (Module.OnCycle).
	succeeded []func()
	// restoreHeap ends growHeap. It is nil except in the first cycle.
	restoreHeap func()
}

// beginCycle lets the managers set the desired state, and starts the first stage. The shared
// managers get no updates until the cycle ends: no stage may program an object that an
// earlier stage has not.
func (s *scheduler) beginCycle(ctx context.Context) {
	s.admission.Begin()
	s.cycle = &cycle{revision: s.cluster.Observed(), attempted: s.cluster.Model().Revision(), started: time.Now()}
	s.pace.dirty = false
	if s.pace.lastApply.At.IsZero() {
		s.cycle.restoreHeap = growHeap()
	}
	s.stages.shared.complete(s.cluster.Model().Revision())
	s.stages.forgive()
	s.cycle.succeeded = s.modules.onCycle()
	s.advance(ctx)
}

// advance starts the cycle's next stage, once the stage before has ended and the next one has
// no run beside the cycle.
func (s *scheduler) advance(ctx context.Context) {
	switch {
	case s.cycle == nil || s.cycle.at < len(s.stages.runners) && s.stages.runners[s.cycle.at].running:
	case s.cycle.at == len(s.stages.runners) || slices.ContainsFunc(s.stages.runners[:s.cycle.at], (*runner).holdsBack):
		s.endCycle()
	default:
		s.start(ctx, s.stages.runners[s.cycle.at], true)
	}
}

// holdsBack reports whether the later stages must not run.
func (r *runner) holdsBack() bool { return r.Required && r.err != nil && !r.bestEffort() }

// bestEffort reports whether an error of the stage does not fail the cycle.
func (r *runner) bestEffort() bool {
	var incomplete backend.Incomplete
	return r.BestEffort || errors.As(r.err, &incomplete)
}

// start runs a stage. Its own managers complete their work now, not when the cycle began: since then they may have
// had updates, which some of them program at once (a group's set) and others defer (the chain that looks it up). The
// shared managers have done it at the begin of a cycle.
func (s *scheduler) start(ctx context.Context, r *runner, inPass bool) {
	if (r.wants != s.stages.shared || !inPass) && !s.stages.handover.verifies(r) {
		r.wants.complete(s.cluster.Model().Revision())
	}
	limit := r.Timeout
	if limit > 0 && r == s.stages.decides() {
		limit = s.admission.Limit(limit, r.programsChanges())
	}
	s.stages.run(ctx, r, inPass, limit)
}

// finished takes the outcome of a stage, and continues the cycle.
func (s *scheduler) finished(ctx context.Context, o outcome) {
	failedBefore := o.runner.err != nil
	s.stages.ended(o)
	s.judge(o)
	s.record(o)
	s.followUp(o)
	s.account(o, failedBefore)
	s.advance(ctx)
	if r := o.runner; (r.wants != s.stages.shared || s.cycle == nil) && !s.stages.handover.verifies(r) {
		r.wants.free()
	}
}

// judge passes an outcome to the handover and to the probation of large policies.
func (s *scheduler) judge(o outcome) {
	s.stages.handover.note(o)
	if o.runner == s.stages.decides() {
		s.admission.Ended(o.err, o.attempted, o.ended.Sub(o.started))
	}
}

// record keeps a run's results for metrics and status.
func (s *scheduler) record(o outcome) {
	s.measured(o)
	s.stages.repairs.note(s.stages.log(), o.Name, o.applied.Repaired, o.ended)
	if o.err == nil {
		s.stages.quarantine.Set(s.stages.log(), o.Name, o.applied.Refused)
	}
}

// followUp asks for runs of other stages that depend on this one.
func (s *scheduler) followUp(o outcome) {
	s.restored(o)
	if o.err == nil {
		s.forwarded(o.runner)
	}
}

// account moves the cycle on, or notes the result of a run beside the cycles.
func (s *scheduler) account(o outcome, failedBefore bool) {
	r := o.runner
	switch {
	case r.inCycle:
		s.cycle.at++
	case o.err != nil && s.cycle == nil:
		s.failed(r.started, o.err)
	case o.err != nil:
		s.pace.lastApply = control.Apply{At: r.started, Duration: o.ended.Sub(r.started), Error: o.err.Error()}
		s.stages.log().Error("programming a stage failed", "error", o.err)
	case failedBefore:
		// The stages that waited for it can run.
		s.pace.lastApply.Error = ""
		s.pace.nextApply = o.ended
	}
}

// forwarded passes the programmed forwarding flows to the backends: a backend in the switch
// keeps a deleted pod closed as long as the pod has forwarding flows, and has tiers in force once packets are led to them.
func (s *scheduler) forwarded(r *runner) {
	if r.Forwarding == nil {
		return
	}
	if s.stages.backend.Forwarded(r.Forwarding) {
		s.stages.decides().again()
	}
	if h := s.stages.handover; h != nil && h.runner != nil && h.to.Forwarded(r.Forwarding) {
		h.runner.again()
	}
}

// restored starts the policy stage of a backend in the switch again after flow-restore, so
// that the stage waits for the revalidation.
func (s *scheduler) restored(o outcome) {
	if o.Name == backend.FlowRestoreStage && o.applied.Writes > 0 && s.stages.backend.Place() == backend.InSwitch {
		s.stages.decides().again()
	}
}

// measured adds a run to the metrics.
func (s *scheduler) measured(o outcome) {
	s.metrics.Applied(o.Name, o.full, o.ended.Sub(o.started), o.applied.Writes, o.err)
	for _, r := range o.applied.Repaired {
		s.metrics.Repaired(r.Object)
	}
	if len(o.applied.Repaired) > 0 {
		s.modules.onForeign()
	}
	if o.Name == s.stages.backend.Stage().Name && o.err == nil && !o.applied.Pending {
		s.latency.programmed(o.attempted, o.ended, s.metrics.PolicyProgrammed)
		s.modules.onEnforced(o.attempted)
	}
}

// endCycle ends a cycle, and records its result.
func (s *scheduler) endCycle() {
	p := s.cycle
	s.cycle = nil
	s.stages.shared.free()
	if p.restoreHeap != nil {
		p.restoreHeap()
	}
	var errs, aside []error
	for _, r := range s.stages.runners {
		if r.bestEffort() {
			aside = append(aside, r.err)
		} else {
			errs = append(errs, r.err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		s.failedCycle(p, errors.Join(err, errors.Join(aside...)))
		return
	}
	for _, succeeded := range p.succeeded {
		succeeded()
	}
	s.pace.succeeded(p.started)
	s.stages.log().Debug("applied", "revision", p.revision, "duration", s.pace.lastApply.Duration)
	s.programmed = p.revision
	s.cluster.Model().Programmed(p.attempted)
	s.metrics.Succeeded(time.Now())
	if s.pace.oldestPending = (time.Time{}); s.programmed < s.cluster.Observed() {
		s.pace.oldestPending = p.started
	}
	if err := errors.Join(aside...); err != nil {
		s.failedCycle(p, err)
		return
	}
	s.pace.forget()
	s.stages.dropOnce()
}

// failedCycle notes a cycle that failed. New changes do not wait for the retry.
func (s *scheduler) failedCycle(p *cycle, err error) {
	s.failed(p.started, err)
	if s.cluster.Model().Revision() > p.attempted {
		s.pace.nextApply = p.started.Add(s.cfg.Throttle)
	}
}

// failed notes a failed apply, which is retried. The programmed state stays in force.
func (s *scheduler) failed(started time.Time, err error) {
	wait := s.pace.failed(started, err)
	s.stages.log().Error("programming the dataplane failed", "error", err, "retry", wait.Round(time.Millisecond))
}
