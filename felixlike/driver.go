package felixlike

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/policy"
)

// AttachmentSource tells which pods are attached: first a snapshot of
// updates, then synced once, then changes, until ctx ends.
type AttachmentSource func(ctx context.Context, update func(model.Update), synced func()) error

// Config is what a Driver is made of.
type Config struct {
	// Node is this node's name; Backend and Datastore are named in status.
	Node, Backend, Datastore string
	Source                   datastore.Source
	Attachments              AttachmentSource
	Managers                 []managers.Manager
	Stages                   []Stage
	// Lost delivers the reason when the dataplane may have lost what was
	// programmed (a connection broke): everything is read again.
	Lost <-chan error
	Log  *slog.Logger
	Timing
}

// Timing holds the driver's intervals.
type Timing struct {
	// Throttle is the least time between the starts of two applies. A change
	// after a quiet time is applied at once; a storm is applied in batches.
	Throttle time.Duration
	// Resync is the time between two full reads of the dataplane.
	Resync time.Duration
	// RetryMin and RetryMax bound the wait after an apply that failed.
	RetryMin, RetryMax time.Duration
}

// DefaultTiming returns the intervals that an agent runs with.
func DefaultTiming() Timing {
	return Timing{
		// Half of what a person calls immediate, ten times what a small apply takes.
		Throttle: 10 * time.Millisecond,
		// Felix re-reads at 90 s; nothing here relies on it but lost notifications.
		Resync:   90 * time.Second,
		RetryMin: 100 * time.Millisecond,
		RetryMax: 10 * time.Second,
	}
}

// Driver is the one loop that owns the dataplane. Its methods Status, Sync and
// WaitProgrammed may be called from any goroutine while Run runs.
type Driver struct {
	cfg      Config
	log      *slog.Logger
	engine   *policy.Engine
	managers []managers.Manager
	tracker  *tracker
	problems *problems
	// policies are the NetworkPolicies of the datastore, with their source.
	policies map[model.ObjectRef]string
	calls    chan func()
	stopped  chan struct{}
	started  time.Time

	// What follows belongs to the loop.
	sourceSynced, attachmentsSynced bool
	observed, programmed            uint64
	dirty                           bool
	// nodeLost tells that the datastore had this node's object, and has not now.
	nodeLost  bool
	lastApply control.Apply
	nextApply time.Time
	retry     time.Duration
	writes    map[string]int
	waiters   []*waiter
}

// waiter waits until ready reports true.
type waiter struct {
	ready func() bool
	done  chan struct{}
}

// New returns a driver that has not started.
func New(cfg Config) *Driver {
	t := newTracker(cfg.Node)
	d := &Driver{
		cfg: cfg, log: cfg.Log.With("component", "driver", "backend", cfg.Backend),
		engine: policy.New(cfg.Node), tracker: t, problems: newProblems(),
		policies: map[model.ObjectRef]string{},
		managers: append(cfg.Managers[:len(cfg.Managers):len(cfg.Managers)], t),
		calls:    make(chan func(), 256), stopped: make(chan struct{}), started: time.Now(),
		writes: map[string]int{},
	}
	for _, s := range cfg.Stages {
		d.writes[s.Name] = 0
	}
	return d
}

// Run programs the dataplane until ctx ends. What is programmed then stays in
// force. It fails only if one of its sources does.
func (d *Driver) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return d.cfg.Source.Run(ctx, func(b datastore.Batch) { d.call(ctx, func() { d.onBatch(b) }) })
	})
	g.Go(func() error {
		return d.cfg.Attachments(ctx,
			func(u model.Update) { d.call(ctx, func() { d.onAttachment(u) }) },
			func() { d.call(ctx, func() { d.attachmentsSynced = true }) })
	})
	g.Go(func() error {
		defer close(d.stopped)
		return d.loop(ctx)
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// call hands work to the loop.
func (d *Driver) call(ctx context.Context, f func()) {
	select {
	case d.calls <- f:
	case <-ctx.Done():
	case <-d.stopped:
	}
}

func (d *Driver) loop(ctx context.Context) error {
	resync := time.NewTicker(d.cfg.Resync)
	defer resync.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(d.untilApply())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-d.calls:
			f()
			d.drain()
		case err := <-d.cfg.Lost:
			d.log.Warn("dataplane connection lost, reading everything again", "reason", err)
			d.invalidate()
		case <-resync.C:
			d.invalidate()
		case <-timer.C:
		}
		if d.dirty && d.inSync() && d.untilApply() <= 0 {
			d.apply(ctx)
		}
		d.wake()
	}
}

// drain takes what waits already, so that one apply serves it all.
func (d *Driver) drain() {
	for {
		select {
		case f := <-d.calls:
			f()
		default:
			return
		}
	}
}

func (d *Driver) untilApply() time.Duration {
	if !d.dirty || !d.inSync() {
		return time.Hour
	}
	return time.Until(d.nextApply)
}

// inSync reports whether all that exists is known: before that, nothing is
// programmed, since what is missing would be swept or left open.
func (d *Driver) inSync() bool {
	return d.sourceSynced && d.attachmentsSynced && d.tracker.nodes[d.cfg.Node] != nil
}

func (d *Driver) invalidate() {
	for _, s := range d.cfg.Stages {
		if s.Invalidate != nil {
			s.Invalidate()
		}
	}
	d.dirty = true
}

func (d *Driver) onAttachment(u model.Update) {
	switch u := u.(type) {
	case model.AttachmentUpdate:
		d.engine.SetLocalAddresses(u.Attachment.Pod, u.Attachment.Addresses)
	case model.AttachmentRemove:
		if a := d.tracker.attachments[u.Pod]; a != nil && a.Interface == u.Interface {
			d.engine.SetLocalAddresses(u.Pod, nil)
		}
	}
	d.update(u)
	d.flush()
}

// flush hands what the engine derived to the managers.
func (d *Driver) flush() {
	for _, u := range d.engine.Flush() {
		d.update(u)
	}
}

// update hands an update to the managers. This node's last known object stays
// in force when the datastore loses it: without it, policy would stand still.
func (d *Driver) update(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		d.nodeLost = d.nodeLost && u.Node.Name != d.cfg.Node
	case model.NodeRemove:
		if u.Name == d.cfg.Node {
			d.nodeLost = true
			return
		}
	}
	d.dirty = true
	// What is new does not wait for the retry of what failed before.
	if retry := d.lastApply.At.Add(d.cfg.Throttle); retry.Before(d.nextApply) {
		d.nextApply = retry
	}
	for _, m := range d.managers {
		m.OnUpdate(u)
	}
}

// apply programs what is wanted, stage by stage.
func (d *Driver) apply(ctx context.Context) {
	start, revision := time.Now(), d.observed
	for _, m := range d.managers {
		m.CompleteDeferredWork()
	}
	var errs []error
	for _, s := range d.cfg.Stages {
		applied, err := s.run(ctx)
		d.writes[s.Name] += applied.Writes
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
			if s.Required {
				break
			}
		}
	}
	d.lastApply = control.Apply{At: start, Duration: time.Since(start)}
	d.nextApply = start.Add(d.cfg.Throttle)
	if err := errors.Join(errs...); err != nil {
		d.failed(err)
		return
	}
	d.log.Debug("applied", "revision", revision, "duration", d.lastApply.Duration)
	d.retry, d.dirty, d.programmed = 0, false, revision
	d.tracker.programmed()
}

// failed notes an apply that failed; it is tried again, later each time. What
// was programmed before stays in force.
func (d *Driver) failed(err error) {
	d.lastApply.Error = err.Error()
	d.retry = min(max(2*d.retry, d.cfg.RetryMin), d.cfg.RetryMax)
	d.nextApply = time.Now().Add(d.retry)
	d.log.Error("programming the dataplane failed", "error", err, "retry", d.retry)
}

func (d *Driver) status() control.Status {
	s := control.Status{
		Version: control.Version, Node: d.cfg.Node, Backend: d.cfg.Backend, Datastore: d.cfg.Datastore,
		PID: os.Getpid(), StartedAt: d.started, InSync: d.inSync(),
		Observed: d.observed, Programmed: d.programmed, LastApply: d.lastApply,
		Writes: map[string]int{}, Problems: d.problems.all(),
	}
	for k, v := range d.writes {
		s.Writes[k] = v
	}
	switch {
	case d.nodeLost:
		s.Problems = append(s.Problems, model.Problem{
			Object: ref("Node", "", d.cfg.Node),
			Reason: "this node is not in the datastore any more: what was known of it stays in force",
		})
	case d.sourceSynced && d.tracker.nodes[d.cfg.Node] == nil:
		s.Problems = append(s.Problems, model.Problem{
			Object: model.ObjectRef{Kind: "Node", Name: d.cfg.Node},
			Reason: "this node is not in the datastore: nothing is programmed before it is",
		})
	}
	s.Problems = append(s.Problems, d.hostNetworkProblems()...)
	s.Problems = append(s.Problems, d.peerProblems()...)
	sortProblems(s.Problems)
	d.tracker.fill(&s)
	return s
}
