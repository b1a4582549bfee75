package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/felixlike/admission"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/felixlike/status"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/wireguard"
)

// Driver is the one loop that owns the dataplane. Its methods but Run may be called from
// any goroutine while Run runs.
type Driver struct {
	cfg       *Config
	queue     *queue
	cluster   *cluster.Cluster
	stages    *stages
	scheduler *scheduler
	feed      *feed
	handovers *handovers
	reporter  *status.Reporter
	modules   modules
	metrics   *metrics.Metrics
}

// New returns a driver that has not started.
func New(cfg Config) *Driver {
	d := &Driver{cfg: &cfg, queue: newQueue(), modules: cfg.Modules}
	d.cluster = cluster.New(cfg.Cluster, d.modules.needs)
	d.stages = newStages(d.cfg, d.cluster.Model())
	var names []string
	for _, s := range cfg.Stages {
		names = append(names, s.Name)
	}
	d.metrics = metrics.New(names, append([]string{"table", "chain", "set", "map", "flow", "group", wireguard.Kind}, hostnet.Kinds()...), d.scrape)
	d.scheduler = &scheduler{cfg: d.cfg, cluster: d.cluster, stages: d.stages, modules: d.modules, metrics: d.metrics, pace: pace{timing: &d.cfg.Timing}}
	d.feed = &feed{cluster: d.cluster, stages: d.stages, scheduler: d.scheduler, modules: d.modules}
	d.scheduler.admission = admission.New(d.cluster, policyStage{d.feed})
	d.handovers = &handovers{cfg: d.cfg, queue: d.queue, cluster: d.cluster, stages: d.stages, scheduler: d.scheduler, feed: d.feed}
	self := own{d.cluster, d.stages, d.scheduler}
	d.reporter = &status.Reporter{Cluster: d.cluster, Quarantine: d.stages.quarantine, Progress: self, Grace: cfg.ReadyGrace, Parts: slices.Concat(modules{self.module()}, d.modules, modules{{Served: self.served}})}
	d.modules.count(d.metrics)
	if cfg.View != nil {
		cfg.View.Loop = loop{d.queue, d.cluster, d.stages, d.scheduler, d.feed}
	}
	d.modules.begin()
	return d
}

// Run programs the dataplane until ctx ends. The programmed state then stays in force. Run
// fails only if one of its sources fails, and with ErrFoundFails.
func (d *Driver) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	d.stages.begin(ctx, g)
	g.Go(func() error {
		// The source makes the next batch only after the loop took this one, so a large
		// cluster's objects are not all in memory at once.
		return d.cfg.Inputs.Source.Run(ctx, func(b datastore.Batch) {
			_ = d.queue.ask(ctx, func() { d.feed.onBatch(b) }) // fails only when the agent ends
		})
	})
	g.Go(func() error {
		return d.cfg.Inputs.Attachments(ctx,
			func(u model.Update) { d.queue.call(ctx, func() { d.feed.onAttachment(u) }) },
			func() { d.queue.call(ctx, d.cluster.AttachmentsSynced) })
	})
	for _, m := range d.modules {
		if m.Run != nil {
			g.Go(func() error { return m.Run(ctx) })
		}
	}
	g.Go(func() error {
		defer close(d.queue.stopped)
		return d.loop(ctx)
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// SetBackend moves policy to the named backend and waits until the old backend's objects
// are removed. If ctx ends first, the change continues. If the new backend cannot be
// programmed, or its state differs when it is read back, the old one stays in force and the
// error has the reason.
func (d *Driver) SetBackend(ctx context.Context, name string) error {
	outcome := make(chan error, 1)
	d.queue.call(ctx, func() { d.handovers.begin(name, outcome) })
	select {
	case err := <-outcome:
		return err
	case <-d.queue.stopped:
		return ErrStopped
	case <-ctx.Done():
		return fmt.Errorf("waiting for backend %s: %w", name, ctx.Err())
	}
}

// scrape returns the current state, unless the loop is stuck.
func (d *Driver) scrape() (metrics.State, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), ScrapeTimeout)
	defer cancel()
	var s metrics.State
	err := d.queue.ask(ctx, func() { s = d.reporter.Measure() })
	return s, err == nil
}

// loop owns the driver's state. It never waits for a stage: while one runs, the loop still
// takes changes, notices and requests.
func (d *Driver) loop(ctx context.Context) error {
	resync := time.NewTicker(d.cfg.Resync)
	defer resync.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		d.stages.beat()
		timer.Reset(d.scheduler.untilDue())
		select {
		case <-ctx.Done():
			d.stages.settle()
			return ctx.Err()
		case f := <-d.queue.calls:
			f()
			d.drain()
		case o := <-d.stages.outcomes:
			d.scheduler.finished(ctx, o)
		case <-d.stages.noticed:
			d.scheduler.takeNotices()
		case <-resync.C:
			d.scheduler.invalidate()
			d.modules.onResync()
		case <-timer.C:
		}
		if err := d.handovers.fails(); err != nil {
			d.stages.settle()
			return err
		}
		d.handovers.step(ctx)
		d.scheduler.begin(ctx)
		d.queue.wake()
	}
}

// drain takes everything that already waits, so that one apply programs it together.
func (d *Driver) drain() {
	for {
		d.stages.beat()
		select {
		case f := <-d.queue.calls:
			f()
		default:
			return
		}
	}
}
