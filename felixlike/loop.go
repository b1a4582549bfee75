package felixlike

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/internal/panics"
)

// heartbeat is the longest time that the loop sleeps, so that an idle loop can
// be told from one that is stuck.
const heartbeat = 2 * time.Second

// loop owns the driver's state. It never waits for a stage: while one runs, the
// loop goes on taking changes, notices and questions.
func (d *Driver) loop(ctx context.Context) error {
	resync := time.NewTicker(d.cfg.Resync)
	defer resync.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		d.beat()
		timer.Reset(d.untilDue())
		select {
		case <-ctx.Done():
			d.settle()
			return ctx.Err()
		case f := <-d.calls:
			f()
			d.drain()
		case o := <-d.outcomes:
			d.finished(ctx, o)
		case <-d.noticed:
			d.takeNotices()
		case err := <-d.cfg.Lost:
			d.log.Warn("dataplane connection lost, reading everything again", "reason", err)
			for _, r := range d.runners {
				r.distrusted = true
			}
			d.invalidate()
		case <-resync.C:
			d.invalidate()
		case <-timer.C:
		}
		d.begin(ctx)
		d.wake()
	}
}

// drain takes what waits already, so that one apply serves it all.
func (d *Driver) drain() {
	for {
		d.beat()
		select {
		case f := <-d.calls:
			f()
		default:
			return
		}
	}
}

// settle waits for the stages that run: their receivers are closed next.
func (d *Driver) settle() {
	for ; d.running > 0; d.running-- {
		<-d.outcomes
	}
}

// inSync reports whether all that exists is known: before that, nothing is
// programmed, since what is missing would be swept or left open.
func (d *Driver) inSync() bool {
	return d.sourceSynced && d.attachmentsSynced && d.addressesKnown && d.tracker.nodes[d.cfg.Node] != nil
}

// passAt returns when the next pass is to begin, if one is to.
func (d *Driver) passAt() (time.Time, bool) {
	return d.nextApply, d.dirty && d.inSync() && d.pass == nil && d.running == 0
}

// aloneAt returns when the stage is to be applied beside the passes, if it is.
// Two writers that undo each other's work do so no faster than the throttle
// lets them; a stage that something is set aside of waits longer, and so does
// one that fails. A failure is tried again by the next pass, unless that has to
// wait for stages that are slow.
func (d *Driver) aloneAt(r *runner) (time.Time, bool) {
	t := d.cfg.Timing
	switch {
	case r.running || !r.applied || d.handover.holds(r):
		return time.Time{}, false
	case r.wants == d.shared && (d.dirty || d.pass != nil):
		// Its managers may want what an earlier stage has not programmed.
		return time.Time{}, false
	case r.wanted && r.err == nil:
		return r.started.Add(t.Throttle), true
	case r.wanted:
		return r.started.Add(t.RetryMin), true
	case r.err != nil && d.pass != nil:
		return r.started.Add(min(t.RetryMin<<min(r.failures-1, maxDoublings), t.RetryMax)), true
	case !r.nextTry.IsZero() && r.err == nil:
		return later(r.nextTry, r.started.Add(t.RetryMin)), true
	}
	return time.Time{}, false
}

// maxDoublings keeps a wait that doubles from overflowing.
const maxDoublings = 16

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// untilDue returns the time until something is to be begun.
func (d *Driver) untilDue() time.Duration {
	due := time.Now().Add(heartbeat)
	if at, ok := d.passAt(); ok && at.Before(due) {
		due = at
	}
	for _, r := range d.runners {
		if at, ok := d.aloneAt(r); ok && at.Before(due) {
			due = at
		}
	}
	return time.Until(due)
}

// begin starts what is due: a pass, or stages by themselves.
func (d *Driver) begin(ctx context.Context) {
	d.stepHandover(ctx)
	now := time.Now()
	d.dirty = d.dirty || d.turns.pending()
	if at, ok := d.passAt(); ok && !at.After(now) {
		d.beginPass(ctx)
	}
	for _, r := range d.runners {
		if at, ok := d.aloneAt(r); ok && !at.After(now) {
			if !d.handover.verifies(r) {
				r.wants.complete(d.tracker.noted)
			}
			d.start(ctx, r, false)
		}
	}
}

// invalidate makes the next pass read everything, except where a Watch knows
// what changed.
func (d *Driver) invalidate() {
	for _, r := range d.runners {
		r.stale = r.stale || r.Overlooks || !r.watched()
	}
	d.dirty = true
}

// takeNotices takes note of what the Watches have noticed.
func (d *Driver) takeNotices() {
	for _, r := range d.runners {
		switch {
		case !r.noticed.Swap(false):
		case r.Name == backend.ForwardingStage:
			// Policy in the switch may have gone with them, and comes first.
			d.distrustSwitch()
			d.dirty = true
		default:
			r.wanted, r.distrusted = true, true
		}
	}
}

// distrustSwitch has the next pass read what decides in the switch.
func (d *Driver) distrustSwitch() {
	if r := d.decides(); r != nil && d.backend.Place() == backend.InSwitch {
		r.stale = true
	}
	if h := d.handover; h != nil && h.runner != nil && h.to.Place() == backend.InSwitch {
		h.runner.stale = true
	}
}

// listen runs the stage's Watch and WatchToo, if it has them, until the stage is dismissed.
func (d *Driver) listen(ctx context.Context, r *runner) {
	ctx, r.dismiss = context.WithCancel(ctx)
	for _, watch := range r.Watches() {
		d.group.Go(func() error { return d.watch(ctx, r, watch) })
	}
}

// watch runs a Watch of a stage until ctx ends. One that fails is started again,
// later each time; until then the stage is read at every resync.
func (d *Driver) watch(ctx context.Context, r *runner, watch backend.Watch) error {
	wait := d.cfg.RetryMin
	for {
		began := time.Now()
		r.watching.Add(1)
		err := panics.Guard(func() error {
			return watch(ctx, func() {
				r.noticed.Store(true)
				d.nudge()
			})
		})
		r.watching.Add(-1)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > d.cfg.RetryMax {
			wait = d.cfg.RetryMin
		}
		d.panics.With(d.log, err).Error("foreign changes are not noticed until the next resync", "stage", r.Name, "error", err, "retry", wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, d.cfg.RetryMax)
	}
}

// nudge wakes the loop.
func (d *Driver) nudge() {
	select {
	case d.noticed <- struct{}{}:
	default: // it will wake anyway
	}
}
