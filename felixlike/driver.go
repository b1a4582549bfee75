package felixlike

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
)

// AttachmentSource tells which pods are attached: first a snapshot of
// updates, then synced once, then changes, until ctx ends.
type AttachmentSource func(ctx context.Context, update func(model.Update), synced func()) error

// AddressSource tells which addresses this node itself has: at once, and whenever
// they have changed, until ctx ends.
type AddressSource func(ctx context.Context, update func(model.HostAddressesUpdate)) error

// Config is what a Driver is made of.
type Config struct {
	// Node is this node's name; it and Datastore are named in status.
	Node, Datastore string
	// Backend decides policy; its stage is among the Stages. NewBackend makes the
	// one that a live agent is told to change to, Crossing moves packets and
	// connections where the two judge in different places.
	Backend    backend.Backend
	NewBackend func(name string) (backend.Backend, error)
	Crossing   Crossing
	// Forwards reports whether the forwarding flows that were set last are those
	// of an attachment, too. It may be nil.
	Forwards func(*model.Attachment) bool
	// Connections lists the connections of pods that a place has let through. It
	// may be nil.
	Connections func(ctx context.Context, place backend.Place) ([]control.Connection, error)
	Source      datastore.Source
	Attachments AttachmentSource
	// HostAddresses may be nil: then nothing waits for it.
	HostAddresses AddressSource
	// Managers are those of all stages that have none of their own.
	Managers []managers.Manager
	// Stages are programmed in this order.
	Stages []backend.Stage
	// Settings are those that what is programmed depends on. It may be nil.
	Settings func() control.Settings
	// Dropped reads how many packets of pods the switch has dropped for reasons other than
	// policy, by reason. It may be nil.
	Dropped func(ctx context.Context) (map[string]uint64, error)
	// HealthAddress says where probes and metrics are served, for status. It may
	// be nil.
	HealthAddress func() string
	// Underlay tells of this node's network, for status. It may be nil.
	Underlay func() control.Underlay
	// NodeProblems returns problems of this node, for status. It may be nil.
	NodeProblems func() []model.Problem
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
	// ReadyGrace is how long a change may wait before the agent counts as not
	// ready. Changes come all the time, and take their moment.
	ReadyGrace time.Duration
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
		// More than any apply takes that does not hang.
		ReadyGrace: 5 * time.Second,
	}
}

// Driver is the one loop that owns the dataplane. Its methods Status, Sync and
// WaitProgrammed may be called from any goroutine while Run runs.
type Driver struct {
	cfg      Config
	log      *slog.Logger
	engine   *policy.Engine
	tracker  *tracker
	problems *problems
	// policies are the NetworkPolicies of the datastore, with their source.
	policies map[model.ObjectRef]string
	objects  *objects
	sampler  *sampler
	drops    *drops
	// uids are those of this node's pods.
	uids     uids
	calls    chan func()
	outcomes chan outcome
	// noticed wakes the loop after a notice of a Watch.
	noticed chan struct{}
	stopped chan struct{}
	started time.Time
	metrics *metrics.Metrics
	panics  panics.Log
	// lastBeat is when the loop moved last, as time since started.
	lastBeat atomic.Int64

	// What follows belongs to the loop.
	sourceSynced, attachmentsSynced bool
	// addressesKnown tells that this node's own addresses are.
	addressesKnown       bool
	observed, programmed uint64
	dirty                bool
	// behind is when the oldest revision came that is not programmed, or zero.
	behind  time.Time
	latency latency
	// nodeLost tells that the datastore had this node's object, and has not now.
	nodeLost  bool
	lastApply control.Apply
	nextApply time.Time
	retry     time.Duration
	waiters   []*waiter
	runners   []*runner
	// visible is runners for those who do not wait for the loop.
	visible atomic.Pointer[[]*runner]
	// shared are the managers of the stages that have none of their own.
	shared *wants
	// pass is the one under way, or nil; running counts the stages that run.
	pass       *pass
	running    int
	repairs    *repairs
	quarantine *quarantine
	turns      *turns
	// backend decides policy; handover is its change under way, or nil.
	backend  backend.Backend
	handover *handover
	// group is what Run waits for.
	group *errgroup.Group
}

// New returns a driver that has not started.
func New(cfg Config) *Driver {
	t := newTracker(cfg.Node)
	d := &Driver{
		cfg: cfg, log: cfg.Log.With("component", "driver", "backend", cfg.Backend.Name()),
		engine: policy.New(cfg.Node), tracker: t, problems: newProblems(),
		policies: map[model.ObjectRef]string{}, objects: newObjects(), sampler: newSampler(), drops: newDrops(), uids: uids{}, turns: newTurns(),
		calls: make(chan func(), 256), outcomes: make(chan outcome, len(cfg.Stages)+1), // one may join in a handover
		noticed: make(chan struct{}, 1), stopped: make(chan struct{}), started: time.Now(),
		shared: &wants{managers: cfg.Managers}, backend: cfg.Backend,
		addressesKnown: cfg.HostAddresses == nil,
		repairs:        newRepairs(), quarantine: newQuarantine(naming{renderer: cfg.Backend.Renderer(), tracker: t}),
	}
	var names []string
	for _, s := range cfg.Stages {
		d.runners = append(d.runners, newRunner(s, d.shared))
		names = append(names, s.Name)
	}
	d.setRunners(d.runners)
	t.waits = d.turns.waiting
	d.backend.Decides()
	d.metrics = metrics.New(names, []string{"table", "chain", "set", "map", "flow"}, d.scrape)
	if cfg.Dropped != nil {
		d.metrics.CountDropped(func() (map[string]uint64, error) {
			ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
			defer cancel()
			return cfg.Dropped(ctx)
		})
	}
	return d
}

// Run programs the dataplane until ctx ends. What is programmed then stays in
// force. It fails only if one of its sources does.
func (d *Driver) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	d.group = g
	g.Go(func() error {
		// A batch is taken before the next one is made: a large cluster's objects are
		// not all in memory at once.
		return d.cfg.Source.Run(ctx, func(b datastore.Batch) {
			_ = d.ask(ctx, func() { d.onBatch(b) }) // it fails only when all ends
		})
	})
	g.Go(func() error {
		return d.cfg.Attachments(ctx,
			func(u model.Update) { d.call(ctx, func() { d.onAttachment(u) }) },
			func() { d.call(ctx, func() { d.attachmentsSynced = true }) })
	})
	if d.cfg.HostAddresses != nil {
		g.Go(func() error {
			return d.cfg.HostAddresses(ctx, func(u model.HostAddressesUpdate) {
				d.call(ctx, func() { d.addressesKnown = true; d.update(u) })
			})
		})
	}
	for _, r := range d.runners {
		d.listen(ctx, r)
	}
	g.Go(func() error { return d.sample(ctx) })
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
	d.turns.flushed(d)
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
	d.beat()
	d.dirty = true
	d.quarantine.modelChanged()
	d.tracker.OnUpdate(u)
	// What is new does not wait for the retry of what failed before.
	if retry := d.lastApply.At.Add(d.cfg.Throttle); retry.Before(d.nextApply) {
		d.nextApply = retry
	}
	d.shared.update(u, d.pass != nil)
	for _, r := range d.runners {
		if r.wants == d.shared {
			continue
		}
		r.wants.update(u, d.handover.verifies(r))
		// It does not wait for stages that are slow.
		r.wanted = r.wanted || d.pass != nil
	}
}
