package felixlike

import (
	"context"
	"errors"
	"fmt"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

var errStopped = errors.New("the agent is stopping")

// Status implements control.Agent.
func (d *Driver) Status() control.Status {
	var s control.Status
	if err := d.ask(context.Background(), func() { s = d.status() }); err != nil {
		return control.Status{Version: control.Version, Node: d.cfg.Node, Backend: d.cfg.Backend.Name()}
	}
	return s
}

// Sync implements control.Agent.
func (d *Driver) Sync(ctx context.Context, pods []model.PodID) (uint64, error) {
	revision, err := d.cfg.Source.Sync(ctx)
	if err != nil {
		return 0, fmt.Errorf("look into the datastore: %w", err)
	}
	return d.wait(ctx, func() (bool, error) {
		if !d.reached(revision) {
			return false, nil
		}
		return d.podsReady(pods)
	})
}

// podsReady reports whether the pods are attached, known, and programmed. What
// was set aside may stay so for ever: a pod that it closes is an error.
func (d *Driver) podsReady(pods []model.PodID) (bool, error) {
	closed := d.quarantine.view().closed
	for _, id := range pods {
		state, reason := d.tracker.state(id, closed)
		if state == control.EndpointClosed && closed[id] != "" && d.tracker.endpoints[id] != nil {
			return false, fmt.Errorf("pod %s is closed: %s", id, reason)
		}
		if state != control.EndpointProgrammed {
			return false, nil
		}
	}
	return true, nil
}

// WaitProgrammed implements control.Agent.
func (d *Driver) WaitProgrammed(ctx context.Context, revision uint64) (uint64, error) {
	return d.wait(ctx, func() (bool, error) { return d.reached(revision), nil })
}

func (d *Driver) reached(revision uint64) bool {
	return d.inSync() && d.programmed >= revision && d.turns.reached(revision)
}

// ask runs f in the loop and waits for it.
func (d *Driver) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	d.call(ctx, func() { f(); close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.stopped:
		return errStopped
	}
}

// waiter waits until ready reports true or fails.
type waiter struct {
	ready func() (bool, error)
	// err may be read once done is closed.
	err  error
	done chan struct{}
}

// wait waits until ready, which runs in the loop, reports true, and returns
// the revision programmed then.
func (d *Driver) wait(ctx context.Context, ready func() (bool, error)) (uint64, error) {
	w := &waiter{ready: ready, done: make(chan struct{})}
	d.call(ctx, func() { d.waiters = append(d.waiters, w) })
	select {
	case <-w.done:
	case <-d.stopped:
		return 0, errStopped
	case <-ctx.Done():
		d.call(context.WithoutCancel(ctx), func() { d.forget(w) })
		return 0, fmt.Errorf("waiting until programmed: %w", ctx.Err())
	}
	if w.err != nil {
		return 0, w.err
	}
	var revision uint64
	err := d.ask(ctx, func() { revision = d.programmed })
	return revision, err
}

// wake releases the waiters whose time has come.
func (d *Driver) wake() {
	waiting := d.waiters[:0]
	for _, w := range d.waiters {
		ready, err := w.ready()
		if w.err = err; ready || err != nil {
			close(w.done)
		} else {
			waiting = append(waiting, w)
		}
	}
	clear(d.waiters[len(waiting):])
	d.waiters = waiting
}

func (d *Driver) forget(gone *waiter) {
	for i, w := range d.waiters {
		if w == gone {
			d.waiters = append(d.waiters[:i], d.waiters[i+1:]...)
			return
		}
	}
}
