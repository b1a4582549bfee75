package felixlike

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/panics"
)

// pass is one apply of all stages, in order.
type pass struct {
	// revision and noted are what it programs: the datastore's revision, and the
	// tracker's count of updates.
	revision, noted uint64
	started         time.Time
	// at is the stage that runs, or is the next to.
	at int
}

// beginPass lets the managers set what is wanted now, and starts with the
// first stage. The shared managers are told nothing new before it ends: no
// stage may program what an earlier one has not.
func (d *Driver) beginPass(ctx context.Context) {
	d.turns.begin(d)
	d.pass = &pass{revision: d.observed, noted: d.tracker.noted, started: time.Now()}
	d.dirty = false
	if d.lastApply.At.IsZero() {
		// What the objects came in, and what it took to compile them, is garbage
		// by now. The first pass renders everything and reads all that the kernel
		// holds: with the one out of the way, the two peaks of a start do not add up.
		runtime.GC()
	}
	d.shared.complete(d.tracker.noted)
	for _, r := range d.runners {
		r.err = nil
		if r.wants != d.shared {
			r.wants.complete(d.tracker.noted)
		}
	}
	d.advance(ctx)
}

// advance starts the pass's next stage, once the one before has ended, and so
// has what the next one does by itself.
func (d *Driver) advance(ctx context.Context) {
	switch {
	case d.pass == nil || d.pass.at < len(d.runners) && d.runners[d.pass.at].running:
	case d.pass.at == len(d.runners) || slices.ContainsFunc(d.runners[:d.pass.at], (*runner).holdsBack):
		d.endPass()
	default:
		d.start(ctx, d.runners[d.pass.at], true)
	}
}

// holdsBack reports whether the later stages must not run.
func (r *runner) holdsBack() bool { return r.Required && r.err != nil }

func (d *Driver) start(ctx context.Context, r *runner, inPass bool) {
	r.inPass = inPass
	d.running++
	r.noted = r.wants.noted
	if r.Timeout > 0 {
		r.limit = r.Timeout
		if r == d.decides() {
			r.limit = d.turns.trials.limit(r)
		}
		r.mustEnd.Store(int64(time.Since(d.started) + r.limit))
	}
	r.start(ctx, d.outcomes)
}

// finished takes the outcome of a stage, and goes on with the pass.
func (d *Driver) finished(ctx context.Context, o outcome) {
	r, failedBefore := o.runner, o.runner.err != nil
	d.running--
	r.finished(o)
	if panics.Stack(o.err) != "" {
		d.panics.With(d.log, o.err).Error("a stage has panicked", "stage", r.Name, "error", o.err)
	}
	d.handover.note(o)
	if r == d.decides() {
		d.turns.trials.ended(d, d.turns, o)
	}
	d.measured(o)
	d.restored(o)
	d.repairs.note(d.log, r.Name, o.applied.Repaired, o.ended)
	if o.err == nil {
		d.quarantine.set(d.log, r.Name, o.applied.Refused)
		d.forwarded(r)
	}
	switch {
	case r.inPass:
		d.pass.at++
	case o.err != nil && d.pass == nil:
		d.failed(r.started, o.err)
	case o.err != nil:
		d.lastApply = control.Apply{At: r.started, Duration: o.ended.Sub(r.started), Error: o.err.Error()}
		d.log.Error("programming a stage failed", "error", o.err)
	case failedBefore:
		// What it held back can go.
		d.lastApply.Error = ""
		d.nextApply = o.ended
	}
	d.advance(ctx)
	if (r.wants != d.shared || d.pass == nil) && !d.handover.verifies(r) {
		r.wants.free()
	}
}

// forwarded tells the backends what is forwarded, once that is programmed: one in
// the switch keeps a pod that has left closed for as long as it has forwarding
// flows.
func (d *Driver) forwarded(r *runner) {
	if r.Name != backend.ForwardingStage || d.cfg.Forwards == nil {
		return
	}
	if d.backend.Forwarded(d.cfg.Forwards) {
		d.decides().wanted = true
	}
	if h := d.handover; h != nil && h.runner != nil && h.to.Forwarded(d.cfg.Forwards) {
		h.runner.wanted = true
	}
}

// restored starts the policy stage of a backend in the switch again after flow-restore, so
// that it settles.
func (d *Driver) restored(o outcome) {
	if o.Name == flowRestoreStage && o.applied.Writes > 0 && d.backend.Place() == backend.InSwitch {
		d.decides().wanted = true
	}
}

// measured tells the metrics of a run.
func (d *Driver) measured(o outcome) {
	d.metrics.Applied(o.Name, o.full, o.ended.Sub(o.started), o.applied.Writes, o.err)
	for _, r := range o.applied.Repaired {
		d.metrics.Repaired(r.Object)
	}
	if o.Name == d.backend.Stage().Name && o.err == nil && !o.applied.Pending {
		d.latency.programmed(o.noted, o.ended, d.metrics.PolicyProgrammed)
	}
}

// endPass takes stock of a pass.
func (d *Driver) endPass() {
	p := d.pass
	d.pass = nil
	d.shared.free()
	var errs, aside []error
	for _, r := range d.runners {
		if r.Aside {
			aside = append(aside, r.err)
		} else {
			errs = append(errs, r.err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		d.failedPass(p, errors.Join(err, errors.Join(aside...)))
		return
	}
	d.lastApply = control.Apply{At: p.started, Duration: time.Since(p.started)}
	d.nextApply = p.started.Add(d.cfg.Throttle)
	d.log.Debug("applied", "revision", p.revision, "duration", d.lastApply.Duration)
	d.programmed = p.revision
	d.tracker.programmed(p.noted)
	d.metrics.Succeeded(time.Now())
	if d.behind = (time.Time{}); d.programmed < d.observed {
		d.behind = p.started
	}
	if err := errors.Join(aside...); err != nil {
		d.failedPass(p, err)
		return
	}
	d.retry = 0
	d.dropOnce()
}

// failedPass notes a pass that failed. What is new does not wait for the retry.
func (d *Driver) failedPass(p *pass, err error) {
	d.failed(p.started, err)
	if d.tracker.noted > p.noted {
		d.nextApply = p.started.Add(d.cfg.Throttle)
	}
}

// failed notes an apply that failed; it is tried again, later each time. What
// was programmed before stays in force.
func (d *Driver) failed(started time.Time, err error) {
	d.lastApply = control.Apply{At: started, Duration: time.Since(started), Error: err.Error()}
	d.dirty = true
	d.retry = min(max(2*d.retry, d.cfg.RetryMin), d.cfg.RetryMax)
	d.nextApply = time.Now().Add(d.retry)
	d.log.Error("programming the dataplane failed", "error", err, "retry", d.retry)
}
