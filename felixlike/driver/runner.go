package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
)

// runner runs one stage, each time in a new goroutine, and never twice at a time.
type runner struct {
	backend.Stage
	wants *wants
	// dismiss ends the stage's Watch and WatchToo.
	dismiss context.CancelFunc

	// noticed is set after a Watch has noticed a foreign change. watching counts the Watches
	// that listen. The Watches' goroutines set both.
	noticed  atomic.Bool
	watching atomic.Int32
	// broken is set after a manager has panicked.
	broken atomic.Bool
	// mustEnd is the deadline of the run, as time since the driver's start; zero if there
	// is no run or no deadline.
	mustEnd atomic.Int64

	// The fields below belong to the loop.
	running, inCycle bool
	started          time.Time
	// limit bounds the next run, if Timeout is not zero.
	limit time.Duration
	// attempted is the model's revision that the newest run programs, if the stage
	// has its own managers.
	attempted uint64
	// programmed is attempted of the newest run that succeeded.
	programmed uint64
	// applied is set after a successful apply: only then is there anything to repair.
	applied bool
	// stale asks for an Invalidate before the next Apply, wanted for an Apply
	// beside the cycles.
	stale, dirty bool
	// distrusted is set if another program may have changed the stage's objects. The next
	// Apply may then read everything.
	distrusted bool
	// nextTry is the time of the next try of a quarantined object; zero if there is none.
	nextTry time.Time
	err     error
	// failures counts the failures since the last success.
	failures int
	writes   int
	// Numbers of our objects in the kernel or switch.
	rules, elements, flows int
	// unreadable names the tables that the last run could not read in full.
	unreadable []string
}

// watched reports whether all Watches of the stage listen.
func (r *runner) watched() bool {
	n := len(r.Watches())
	return n > 0 && int(r.watching.Load()) == n
}

// again asks for a run beside the cycles.
func (r *runner) again() { r.dirty = true }

// reread makes the next run read everything; distrust allows it to.
func (r *runner) reread()   { r.stale = true }
func (r *runner) distrust() { r.distrusted = true }

// programsChanges reports whether the next run need not read everything.
func (r *runner) programsChanges() bool {
	return r.applied && !r.stale && r.failures == 0 && !r.distrusted && !r.noticed.Load()
}

// follows reports whether the stage comes directly after another one.
func (r *runner) follows(other *runner) bool { return r.After != "" && other.Name == r.After }

// outcome is the end of a run.
type outcome struct {
	*runner
	applied backend.Applied
	err     error
	full    bool
	ended   time.Time
}

func newRunner(s backend.Stage, shared *wants) *runner {
	r := &runner{Stage: s, wants: shared}
	if len(s.Managers) > 0 {
		r.wants = &wants{managers: s.Managers}
	}
	return r
}

// start runs the stage, and sends the outcome to the channel.
func (r *runner) start(ctx context.Context, outcomes chan<- outcome) {
	full := !r.applied || r.stale
	failed := r.wants.failed
	r.broken.Store(failed != nil)
	if r.stale && r.Invalidate != nil {
		failed = errors.Join(failed, panics.Guard(func() error { r.Invalidate(); return nil }))
	}
	r.stale, r.dirty, r.distrusted, r.running, r.started = false, false, false, true, time.Now()
	r.wants.running++
	stage := r.Stage
	stage.Timeout = r.limit
	go func() {
		var applied backend.Applied
		err := failed
		if err == nil {
			applied, err = stage.Run(ctx)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", r.Name, err)
		}
		outcomes <- outcome{runner: r, applied: applied, err: err, full: full || applied.Full, ended: time.Now()}
	}()
}

// finished notes the end of a run.
func (r *runner) finished(o outcome) {
	r.running, r.err = false, o.err
	r.mustEnd.Store(0)
	r.wants.running--
	r.writes += o.applied.Writes
	if o.err != nil {
		r.failures++
		// A panic may leave the stage's state inconsistent: read the kernel again.
		r.stale = r.stale || panics.Stack(o.err) != ""
		return
	}
	r.failures, r.programmed = 0, r.attempted
	r.applied, r.rules, r.elements, r.flows = true, o.applied.Rules, o.applied.Elements, o.applied.Flows
	r.unreadable, r.nextTry = o.applied.Unreadable, time.Time{}
	for _, refused := range o.applied.Refused {
		if next := refused.NextTry; !next.IsZero() && (r.nextTry.IsZero() || next.Before(r.nextTry)) {
			r.nextTry = next
		}
	}
}

// wants has managers and the updates that wait for them. The managers set the desired state
// of stages, so they get no updates while one of these stages runs.
type wants struct {
	managers []managers.Manager
	// running counts the stages that run.
	running int
	backlog []model.Update
	// revision is the model's revision that the desired state includes.
	revision uint64
	// failed is the panic of a manager. Its desired state may be wrong from then on, so
	// the stages keep what is programmed until the agent restarts.
	failed error
}

// update sends an update to the managers, now or when no stage uses them.
func (w *wants) update(u model.Update, busy bool) {
	if w.running > 0 || busy {
		w.backlog = append(w.backlog, u)
		return
	}
	w.send(u)
}

func (w *wants) send(u model.Update) {
	w.each(func(m managers.Manager) { m.OnUpdate(u) })
}

// each calls do with every manager, unless one has failed.
func (w *wants) each(do func(managers.Manager)) {
	if w.failed != nil {
		return
	}
	w.failed = panics.Guard(func() error {
		for _, m := range w.managers {
			do(m)
		}
		return nil
	})
}

// free sends the waiting updates to the managers.
func (w *wants) free() {
	if w.running > 0 {
		return
	}
	for _, u := range w.backlog {
		w.send(u)
	}
	w.backlog = nil
}

// complete makes the managers set the desired state. revision is the count of updates that it
// includes, unless some wait.
func (w *wants) complete(revision uint64) {
	if w.running > 0 {
		return
	}
	w.each(managers.Manager.CompleteDeferredWork)
	if len(w.backlog) == 0 {
		w.revision = revision
	}
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
