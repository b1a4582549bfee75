package felixlike

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

// runner runs one stage, each time in a goroutine of its own and never twice
// at a time.
type runner struct {
	backend.Stage
	wants *wants
	// dismiss ends the stage's Watch and WatchToo.
	dismiss context.CancelFunc

	// noticed tells that a Watch has noticed a foreign change, watching how many listen.
	// Both are set by their goroutines.
	noticed  atomic.Bool
	watching atomic.Int32
	// broken tells that a manager has panicked.
	broken atomic.Bool
	// mustEnd is the deadline of the run, as time since the driver began; zero
	// if none runs, or has to end.
	mustEnd atomic.Int64

	// What follows belongs to the loop.
	running, inPass bool
	started         time.Time
	// limit bounds the next run, if Timeout is not zero.
	limit time.Duration
	// noted is the tracker's count of the updates that the newest run programs,
	// if the stage has managers of its own.
	noted uint64
	// programmed is noted of the newest run that succeeded.
	programmed uint64
	// applied tells that the stage was applied before: only then is there
	// anything to repair.
	applied bool
	// stale asks for an Invalidate before the next Apply, wanted for an Apply
	// beside the passes.
	stale, wanted bool
	// distrusted tells that somebody else may have changed what the stage programs, so
	// that the next Apply may read everything.
	distrusted bool
	// nextTry is when something that was set aside is tried again by itself; zero if
	// nothing is.
	nextTry time.Time
	err     error
	// failures counts those since the last success.
	failures int
	writes   int
	// What the receiver holds of ours.
	rules, elements, flows int
}

// watched reports whether all that watch the stage listen.
func (r *runner) watched() bool {
	n := len(r.Watches())
	return n > 0 && int(r.watching.Load()) == n
}

// follows reports whether the stage has its place right behind another one.
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

// start runs the stage; its outcome goes to the channel.
func (r *runner) start(ctx context.Context, outcomes chan<- outcome) {
	full := !r.applied || r.stale
	failed := r.wants.failed
	r.broken.Store(failed != nil)
	if r.stale && r.Invalidate != nil {
		failed = errors.Join(failed, panics.Guard(func() error { r.Invalidate(); return nil }))
	}
	r.stale, r.wanted, r.distrusted, r.running, r.started = false, false, false, true, time.Now()
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

// finished takes note of the end of a run.
func (r *runner) finished(o outcome) {
	r.running, r.err = false, o.err
	r.mustEnd.Store(0)
	r.wants.running--
	r.writes += o.applied.Writes
	if o.err != nil {
		r.failures++
		// A panic may leave the stage's state half done: read the kernel again.
		r.stale = r.stale || panics.Stack(o.err) != ""
		return
	}
	r.failures, r.programmed = 0, r.noted
	r.applied, r.rules, r.elements, r.flows = true, o.applied.Rules, o.applied.Elements, o.applied.Flows
	r.nextTry = time.Time{}
	for _, refused := range o.applied.Refused {
		if next := refused.NextTry; !next.IsZero() && (r.nextTry.IsZero() || next.Before(r.nextTry)) {
			r.nextTry = next
		}
	}
}

// wants are managers with what they still have to be told: they set what
// stages program, so they are left alone while one of these stages runs.
type wants struct {
	managers []managers.Manager
	// running counts the stages that run.
	running int
	backlog []model.Update
	// noted is the tracker's count of the updates that they have made wishes of.
	noted uint64
	// failed is the panic of a manager. Its desired state may be wrong from then on, so
	// the stages keep what is programmed until the agent restarts.
	failed error
}

// update tells the managers of an update, now or when they are free again.
func (w *wants) update(u model.Update, busy bool) {
	if w.running > 0 || busy {
		w.backlog = append(w.backlog, u)
		return
	}
	w.tell(u)
}

func (w *wants) tell(u model.Update) {
	w.each(func(m managers.Manager) { m.OnUpdate(u) })
}

// each does something with every manager, unless one has failed.
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

// free tells the managers what they missed.
func (w *wants) free() {
	if w.running > 0 {
		return
	}
	for _, u := range w.backlog {
		w.tell(u)
	}
	w.backlog = nil
}

// complete makes the managers set what follows from what they were told: so many
// updates, unless some wait for them.
func (w *wants) complete(noted uint64) {
	if w.running > 0 {
		return
	}
	w.each(managers.Manager.CompleteDeferredWork)
	if len(w.backlog) == 0 {
		w.noted = noted
	}
}

// pass is one apply of all stages, in order.
type pass struct {
	// revision and noted are what it programs: the datastore's revision, and the
	// tracker's count of updates.
	revision, noted uint64
	started         time.Time
	// at is the stage that runs, or is the next to.
	at int
}
