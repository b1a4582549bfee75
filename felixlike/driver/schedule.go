package driver

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/internal/backoff"
)

// cycleAt returns the time of the next cycle, if there is one.
func (s *scheduler) cycleAt() (time.Time, bool) {
	return s.pace.nextApply, s.pace.dirty && s.cluster.InSync() && s.cycle == nil && s.stages.running == 0
}

// besideAt returns the time at which the stage is to be applied beside the cycles, if it is.
// The throttle limits a fight with another writer. A stage with a quarantined object waits
// longer, and so does a failed stage. The next cycle retries a failed stage, unless that cycle
// has to wait for slow stages.
func (s *scheduler) besideAt(r *runner) (time.Time, bool) {
	t := s.cfg.Timing
	switch {
	case r.running || !r.applied || s.stages.handover.holds(r):
		return time.Time{}, false
	case r.wants == s.stages.shared && (s.pace.dirty || s.cycle != nil):
		// Its managers' desired state may need objects that an earlier stage has not programmed.
		return time.Time{}, false
	case r.dirty && r.err == nil:
		return r.started.Add(t.Throttle), true
	case r.dirty:
		return r.started.Add(t.RetryMin), true
	case r.err != nil && s.cycle != nil:
		return r.started.Add(backoff.After(r.failures, t.RetryMin, t.RetryMax)), true
	case !r.nextTry.IsZero() && r.err == nil:
		return later(r.nextTry, r.started.Add(t.RetryMin)), true
	}
	return time.Time{}, false
}

// untilDue returns the time until the next cycle or stage is due.
func (s *scheduler) untilDue() time.Duration {
	due := time.Now().Add(heartbeat)
	if at, ok := s.cycleAt(); ok && at.Before(due) {
		due = at
	}
	for _, r := range s.stages.runners {
		if at, ok := s.besideAt(r); ok && at.Before(due) {
			due = at
		}
	}
	return time.Until(due)
}

// begin starts a cycle, or single stages, if they are due.
func (s *scheduler) begin(ctx context.Context) {
	now := time.Now()
	s.pace.dirty = s.pace.dirty || s.admission.Pending()
	if at, ok := s.cycleAt(); ok && !at.After(now) {
		s.beginCycle(ctx)
	}
	for _, r := range s.stages.runners {
		if at, ok := s.besideAt(r); ok && !at.After(now) {
			s.start(ctx, r, false)
		}
	}
}

// invalidate makes the next cycle read everything, except in stages with a Watch that
// reports all changes.
func (s *scheduler) invalidate() {
	for _, r := range s.stages.runners {
		if r.WatchIncomplete || !r.watched() {
			r.reread()
		}
	}
	s.pace.want()
}

// takeNotices starts the stages with foreign changes that a Watch noticed.
func (s *scheduler) takeNotices() {
	for _, r := range s.stages.runners {
		switch {
		case !r.noticed.Swap(false):
		case r.Name == backend.ForwardingStage:
			// Policy in the switch may be lost with them, and comes first.
			s.stages.distrustSwitch()
			s.pace.want()
		default:
			r.again()
			r.distrust()
			if r.wants == s.stages.shared {
				// It runs within the next cycle, if one is due.
				s.pace.notAfter(r.started.Add(s.cfg.Throttle))
			}
		}
	}
}

// reached reports whether the revision of the datastore is programmed.
func (s *scheduler) reached(revision uint64) bool {
	return s.cluster.InSync() && s.programmed >= revision && s.admission.Reached(revision)
}
