package driver

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/felixlike/quarantine"
	"github.com/felixlike/felixlike/internal/panics"
)

// stages has the dataplane's stages and the state of their runs. Except for alive and log,
// all of it belongs to the loop.
type stages struct {
	cfg    *Config
	panics panics.Log
	// logger names the backend. A takeover replaces it while others log.
	logger atomic.Pointer[slog.Logger]
	// group has the goroutines for which Run waits.
	group   *errgroup.Group
	started time.Time
	// lastBeat is the time of the loop's last heartbeat, since started.
	lastBeat atomic.Int64
	runners  []*runner
	// visible is a copy of runners for goroutines that do not wait for the loop.
	visible atomic.Pointer[[]*runner]
	// shared has the managers of the stages without managers of their own.
	shared *wants
	// running counts the stages that run.
	running int
	// changes counts the runs that wrote something, or failed.
	changes  uint64
	outcomes chan outcome
	// noticed wakes the loop after a notice of a Watch.
	noticed chan struct{}
	// backend is the backend in force; handover is the current change of it, or nil.
	backend  backend.Backend
	handover *change
	// quarantine has the stages' quarantined objects, repairs their repairs.
	quarantine *quarantine.List
	repairs    *repairs
	leftovers  *leftovers
	becoming   becoming
	// unchanged is why the last change of the backend ended where it began, or nil.
	unchanged error
}

func newStages(cfg *Config, t *cluster.Model) *stages {
	s := &stages{
		cfg:     cfg,
		started: time.Now(), shared: &wants{managers: cfg.Managers},
		outcomes: make(chan outcome, len(cfg.Stages)+1), // one may join in a handover
		noticed:  make(chan struct{}, 1),
		repairs:  newRepairs(), quarantine: quarantine.New(t), leftovers: &leftovers{}, becoming: becoming{to: cfg.Becomes},
	}
	var all []*runner
	for _, stage := range cfg.Stages {
		all = append(all, newRunner(stage, s.shared))
	}
	s.setRunners(all)
	s.enforce(cfg.Backend)
	return s
}

func (s *stages) log() *slog.Logger { return s.logger.Load() }

// logFor makes the log name a backend.
func (s *stages) logFor(b backend.Backend) {
	s.logger.Store(s.cfg.Log.With("component", "driver", "backend", b.Name()))
}

// beat records a heartbeat of the loop.
func (s *stages) beat() { s.lastBeat.Store(int64(time.Since(s.started))) }

// alive returns why the agent is stuck, or nil. It is stuck if its loop does not move, if a
// stage runs past its deadline, or if a manager has panicked. alive does not wait for the
// loop.
func (s *stages) alive() error {
	now := time.Since(s.started)
	if silent := now - time.Duration(s.lastBeat.Load()); silent > stuckAfter {
		return fmt.Errorf("the loop has not moved for %s", silent.Round(time.Second))
	}
	for _, r := range *s.visible.Load() {
		if r.broken.Load() {
			return fmt.Errorf("stage %s cannot be programmed any more: a manager has panicked", r.Name)
		}
		if end := time.Duration(r.mustEnd.Load()); end != 0 && now > end+stuckAfter {
			return fmt.Errorf("stage %s is %s past its deadline", r.Name, (now - end).Round(time.Second))
		}
	}
	return nil
}

// run starts a run of a stage, with a limit unless that is zero.
func (s *stages) run(ctx context.Context, r *runner, inCycle bool, limit time.Duration) {
	s.running++
	r.inCycle, r.limit, r.attempted = inCycle, limit, r.wants.revision
	if limit > 0 {
		r.mustEnd.Store(int64(time.Since(s.started) + limit))
	}
	r.start(ctx, s.outcomes)
}

// forgive forgets the errors of all stages.
func (s *stages) forgive() {
	for _, r := range s.runners {
		r.err = nil
	}
}

// ended notes the end of a run.
func (s *stages) ended(o outcome) {
	s.running--
	if o.applied.Writes > 0 || o.err != nil {
		s.changes++
	}
	o.runner.finished(o)
	if o.Name == handover.LeftoversStage {
		s.leftovers.staged(o.err)
	}
	if panics.Stack(o.err) != "" {
		s.panics.With(s.log(), o.err).Error("a stage has panicked", "stage", o.Name, "error", o.err)
	}
}

// decides returns the runner of the backend in force.
func (s *stages) decides() *runner {
	for _, r := range s.runners {
		if r.Name == s.backend.Stage().Name {
			return r
		}
	}
	return nil
}

// enforce puts a backend in force.
func (s *stages) enforce(b backend.Backend) {
	s.backend = b
	b.Activate()
	s.logFor(b)
}

// change begins a change of the backend, or notes with nil that there is none.
func (s *stages) change(h *change) { s.handover = h }

// stays notes why the last change of the backend ended where it began, or nil.
func (s *stages) stays(err error) { s.unchanged = err }

// drop takes a runner out of the cycles.
func (s *stages) drop(r *runner) {
	s.setRunners(slices.DeleteFunc(slices.Clone(s.runners), func(o *runner) bool { return o == r }))
	r.dismiss()
}

func (s *stages) setRunners(all []*runner) {
	s.runners = all
	s.visible.Store(&all)
}

// dropOnce removes the stages that run only at the start.
func (s *stages) dropOnce() {
	for _, r := range slices.Clone(s.runners) {
		if r.StartupOnly {
			s.drop(r)
		}
	}
}

// settle waits for the running stages, because their receivers are closed next.
func (s *stages) settle() {
	for ; s.running > 0; s.running-- {
		<-s.outcomes
	}
}

// distrustSwitch makes the next cycle read the policy flows of backends in the switch.
func (s *stages) distrustSwitch() {
	if r := s.decides(); r != nil && s.backend.Place() == backend.InSwitch {
		r.reread()
	}
	if h := s.handover; h != nil && h.runner != nil && h.to.Place() == backend.InSwitch {
		h.runner.reread()
	}
}

// begin begins to listen to changes of all stages, in goroutines of the group.
func (s *stages) begin(ctx context.Context, g *errgroup.Group) {
	s.group = g
	for _, r := range s.runners {
		s.listen(ctx, r)
	}
}

// listen runs the stage's Watch and WatchToo, if it has them, until the stage is dismissed.
func (s *stages) listen(ctx context.Context, r *runner) {
	ctx, r.dismiss = context.WithCancel(ctx)
	for _, watch := range r.Watches() {
		s.group.Go(func() error { return s.watch(ctx, r, watch) })
	}
}

// watch runs a Watch of a stage until ctx ends. It restarts a failed Watch, with growing
// waits. Meanwhile the stage is read at every resync.
func (s *stages) watch(ctx context.Context, r *runner, watch backend.Watch) error {
	wait := s.cfg.RetryMin
	for {
		began := time.Now()
		r.watching.Add(1)
		err := panics.Guard(func() error {
			return watch(ctx, func() {
				r.noticed.Store(true)
				s.nudge()
			})
		})
		r.watching.Add(-1)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > s.cfg.RetryMax {
			wait = s.cfg.RetryMin
		}
		s.panics.With(s.log(), err).Error("foreign changes are not noticed until the next resync", "stage", r.Name, "error", err, "retry", wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, s.cfg.RetryMax)
	}
}

// nudge wakes the loop.
func (s *stages) nudge() {
	select {
	case s.noticed <- struct{}{}:
	default: // the loop will wake anyway
	}
}

const (
	// stuckAfter is the time without a heartbeat, and past a stage's deadline,
	// after which the agent counts as stuck. Five heartbeats: a busy machine
	// must not have its agents restarted.
	stuckAfter = 5 * heartbeat
	// ScrapeTimeout bounds how long a scrape waits for the loop.
	ScrapeTimeout = time.Second
)

// heartbeat is the longest time that the loop sleeps. It makes an idle loop differ from a
// stuck one.
const heartbeat = 2 * time.Second
