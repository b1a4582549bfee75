package driver

import (
	"context"
	"fmt"
	"net/http"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/model"
)

// Model implements control.Agent.
func (d *Driver) Model(ctx context.Context) (control.Model, error) {
	var m control.Model
	err := d.queue.ask(ctx, func() { m = d.reporter.Model() })
	return m, err
}

// Status implements control.Agent.
func (d *Driver) Status() control.Status {
	var s control.Status
	if err := d.queue.ask(context.Background(), func() { s = d.reporter.Status() }); err != nil {
		return control.Status{Version: control.Version, Node: d.cluster.Node(), Backend: d.cfg.Backend.Name()}
	}
	return s
}

// Sync implements control.Agent.
func (d *Driver) Sync(ctx context.Context, pods []model.PodID) (uint64, error) {
	revision, err := d.cfg.Inputs.Source.Sync(ctx)
	if err != nil {
		return 0, fmt.Errorf("look into the datastore: %w", err)
	}
	return d.wait(ctx, func() (bool, error) {
		if !d.scheduler.reached(revision) {
			return false, nil
		}
		return d.reporter.PodsReady(pods)
	})
}

// WaitProgrammed implements control.Agent.
func (d *Driver) WaitProgrammed(ctx context.Context, revision uint64) (uint64, error) {
	return d.wait(ctx, func() (bool, error) { return d.scheduler.reached(revision), nil })
}

// wait waits until ready reports true, and returns the programmed revision. ready runs in the
// loop.
func (d *Driver) wait(ctx context.Context, ready func() (bool, error)) (uint64, error) {
	if err := d.queue.wait(ctx, ready); err != nil {
		return 0, err
	}
	var revision uint64
	err := d.queue.ask(ctx, func() { revision = d.scheduler.programmed })
	return revision, err
}

// Alive returns why the agent is stuck, or nil. It does not wait for the loop.
func (d *Driver) Alive() error { return d.stages.alive() }

// Ready reports whether everything known is programmed.
func (d *Driver) Ready(ctx context.Context) health.Readiness {
	var r health.Readiness
	if err := d.queue.ask(ctx, func() { r = d.reporter.Readiness() }); err != nil {
		r.Missing = []string{loopError(err).Error()}
	}
	return r
}

// loopError is the error of a question to the driver's loop.
func loopError(err error) error { return fmt.Errorf("the loop does not answer: %w", err) }

// Metrics answers scrapes.
func (d *Driver) Metrics() http.Handler { return d.scheduler.metrics.Handler() }

// Objects implements control.Agent.
func (d *Driver) Objects(ctx context.Context) (control.Objects, error) {
	var out control.Objects
	err := d.queue.ask(ctx, func() { out = d.cluster.Served() })
	return out, err
}

// Recorder is a datastore that records Events about problems until ctx ends.
type Recorder interface {
	RecordEvents(ctx context.Context, look func(context.Context) ([]datastore.Notice, error)) error
}

// Notices returns the problems that become Events, in the order of their objects: those of
// status that concern an object of a user.
func (d *Driver) Notices(ctx context.Context) ([]datastore.Notice, error) {
	var all []datastore.Notice
	err := d.queue.ask(ctx, func() { all = d.reporter.Notices() })
	return all, err
}
