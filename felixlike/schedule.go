package felixlike

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
)

// passAt returns when the next pass is to begin, if one is to.
func (s *scheduler) passAt() (time.Time, bool) {
	return s.nextApply, s.dirty && s.cluster.inSync() && s.stages.pass == nil && s.stages.running == 0
}

// aloneAt returns when the stage is to be applied beside the passes, if it is.
// Two writers that undo each other's work do so no faster than the throttle
// lets them; a stage that something is set aside of waits longer, and so does
// one that fails. A failure is tried again by the next pass, unless that has to
// wait for stages that are slow.
func (s *scheduler) aloneAt(r *runner) (time.Time, bool) {
	t := s.cfg.Timing
	switch {
	case r.running || !r.applied || s.stages.handover.holds(r):
		return time.Time{}, false
	case r.wants == s.stages.shared && (s.dirty || s.stages.pass != nil):
		// Its managers may want what an earlier stage has not programmed.
		return time.Time{}, false
	case r.wanted && r.err == nil:
		return r.started.Add(t.Throttle), true
	case r.wanted:
		return r.started.Add(t.RetryMin), true
	case r.err != nil && s.stages.pass != nil:
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
func (s *scheduler) untilDue() time.Duration {
	due := time.Now().Add(heartbeat)
	if at, ok := s.passAt(); ok && at.Before(due) {
		due = at
	}
	for _, r := range s.stages.runners {
		if at, ok := s.aloneAt(r); ok && at.Before(due) {
			due = at
		}
	}
	return time.Until(due)
}

// begin starts what is due: a pass, or stages by themselves.
func (s *scheduler) begin(ctx context.Context) {
	now := time.Now()
	s.dirty = s.dirty || s.turns.pending()
	if at, ok := s.passAt(); ok && !at.After(now) {
		s.beginPass(ctx)
	}
	for _, r := range s.stages.runners {
		if at, ok := s.aloneAt(r); ok && !at.After(now) {
			if !s.stages.handover.verifies(r) {
				r.wants.complete(s.cluster.tracker.noted)
			}
			s.start(ctx, r, false)
		}
	}
}

// invalidate makes the next pass read everything, except where a Watch knows
// what changed.
func (s *scheduler) invalidate() {
	for _, r := range s.stages.runners {
		r.stale = r.stale || r.Overlooks || !r.watched()
	}
	s.dirty = true
}

// takeNotices takes note of what the Watches have noticed.
func (s *scheduler) takeNotices() {
	for _, r := range s.stages.runners {
		switch {
		case !r.noticed.Swap(false):
		case r.Name == backend.ForwardingStage:
			// Policy in the switch may have gone with them, and comes first.
			s.stages.distrustSwitch()
			s.dirty = true
		default:
			r.wanted, r.distrusted = true, true
			if retry := r.started.Add(s.cfg.Throttle); r.wants == s.stages.shared && retry.Before(s.nextApply) {
				// It runs within the next pass, if one is due.
				s.nextApply = retry
			}
		}
	}
}

// reached reports whether the revision of the datastore is programmed.
func (s *scheduler) reached(revision uint64) bool {
	return s.cluster.inSync() && s.programmed >= revision && s.turns.reached(revision)
}
