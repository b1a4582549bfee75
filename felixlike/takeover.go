package felixlike

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/model"
)

// join tells the new backend the whole model and lets it take part.
func (d *Driver) join(ctx context.Context, h *handover) {
	stage := h.to.Stage()
	stage.Required = false // it must not hold anything back before it decides
	h.runner = newRunner(stage, d.shared)
	d.flush()
	for _, u := range d.engine.Snapshot() {
		h.runner.wants.tell(u)
	}
	if d.nodeLost { // it stays in force
		h.runner.wants.tell(model.NodeUpdate{Node: d.tracker.nodes[d.cfg.Node]})
	}
	h.runner.wants.tell(d.tracker.host)
	h.runner.wants.tell(d.tracker.services)
	h.runner.wants.tell(d.tracker.denials)
	for _, u := range d.tracker.attached() {
		h.runner.wants.tell(u)
	}
	// They are for the backend that was in force first, and no other one. What they
	// have not removed, an agent that starts does.
	d.dropOnce()
	d.setRunners(slices.Insert(slices.Clone(d.runners), slices.IndexFunc(d.runners, h.runner.follows)+1, h.runner))
	d.listen(ctx, h.runner)
	d.dirty, d.nextApply = true, time.Now()
	h.next()
}

// follow has the new backend catch up with the old one, and then decide alone.
// Between passes nothing else is begun meanwhile, so the old one does not get
// ahead again.
func (d *Driver) follow(ctx context.Context, h *handover, old *runner) {
	switch next := h.runner; {
	case old.running || next.running:
	case next.err != nil: // tried again, like any stage that fails
		next.wanted = true
	case next.programmed < old.noted:
		next.wants.complete(d.tracker.noted)
		d.start(ctx, next, false)
	default:
		h.next()
		d.takeOver(h, old)
	}
}

// steer has the next pass program forwarding flows that lead packets through
// the place where they are to be judged. What decides there is required from now
// on, so that pass brings it up to date first.
func (d *Driver) steer(h *handover) {
	if slices.ContainsFunc(d.runners, func(r *runner) bool { return r.running }) {
		return
	}
	d.cfg.Crossing.Steer(h.place)
	h.runner.Required = h.place == h.to.Place()
	h.asked, h.steered = true, true
	d.dirty, d.nextApply = true, time.Now()
}

// beside does some work of the handover's phase beside the loop. What fails is
// tried again.
func (d *Driver) beside(ctx context.Context, h *handover, work func(context.Context) error) {
	h.asked = true
	wait := time.Duration(0)
	if h.tries > 0 {
		wait = d.cfg.RetryMin << (h.tries - 1)
	}
	d.group.Go(func() error {
		pause(ctx, wait)
		limited, cancel := context.WithTimeout(ctx, crossingTimeout)
		defer cancel()
		err := panics.Guard(func() error { return work(limited) })
		if ctx.Err() != nil {
			return nil
		}
		d.call(ctx, func() {
			if err == nil {
				h.next()
				return
			}
			d.panics.With(d.log, err).Warn("a step of the change of the backend has failed", "to", h.to.Name(), "step", h.phase(), "error", err)
			h.failed(fmt.Errorf("%s: %w", h.phase(), err))
		})
		return nil
	})
}

// takeOver lets the new backend decide alone. What of the old one is programmed
// is in force until the new one was applied once more, so that it has what the old
// one has kept for both.
func (d *Driver) takeOver(h *handover, old *runner) {
	d.drop(old)
	h.runner.Required, h.runner.wanted = true, true
	d.backend = h.to
	d.backend.Decides()
	d.quarantine.forget(old.Name, h.to.Renderer())
	d.log = d.cfg.Log.With("component", "driver", "backend", h.to.Name())
	d.log.Info("the backend has taken over", "old", h.from.Name(), "after", time.Since(h.began))
}

// retire removes the old backend.
func (d *Driver) retire(ctx context.Context, h *handover) {
	h.asked = true
	d.remove(ctx, h, h.from, nil)
}

// leave takes a new backend out again that could not be programmed.
func (d *Driver) leave(ctx context.Context, h *handover) {
	err := fmt.Errorf("backend %s stays in force: %s cannot be programmed: %w", d.backend.Name(), h.to.Name(), h.err)
	if h.runner == nil {
		d.log.Error("the backend is not changed", "to", h.to.Name(), "error", h.err)
		d.endHandover(h, errors.Join(err, h.to.Close()))
		return
	}
	if h.runner.running {
		return
	}
	h.asked = true
	d.drop(h.runner)
	d.quarantine.forget(h.runner.Name, d.backend.Renderer())
	d.log.Error("the backend is not changed", "to", h.to.Name(), "error", h.err)
	d.remove(ctx, h, h.to, err)
}

// decides returns the runner of the backend that is in force.
func (d *Driver) decides() *runner {
	for _, r := range d.runners {
		if r.Name == d.backend.Stage().Name {
			return r
		}
	}
	return nil
}

// drop takes a runner out of the passes.
func (d *Driver) drop(r *runner) {
	d.setRunners(slices.DeleteFunc(slices.Clone(d.runners), func(o *runner) bool { return o == r }))
	r.dismiss()
}

func (d *Driver) setRunners(all []*runner) {
	d.runners = all
	d.visible.Store(&all)
}

// remove removes all that a backend owns, beside the loop, and ends the
// handover. What cannot be removed is tried again: it only ever denies more.
func (d *Driver) remove(ctx context.Context, h *handover, b backend.Backend, result error) {
	keep := d.backend.Name()
	d.group.Go(func() error {
		wait := d.cfg.RetryMin
		for ctx.Err() == nil {
			err := panics.Guard(func() error { return b.Remove(ctx, keep) })
			if err == nil {
				err = b.Close()
				d.call(ctx, func() { d.endHandover(h, errors.Join(result, err)) })
				return nil
			}
			d.panics.With(d.log, err).Error("the backend cannot be removed", "removing", b.Name(), "error", err, "retry", wait)
			pause(ctx, wait)
			wait = min(2*wait, d.cfg.RetryMax)
		}
		return nil
	})
}

func (d *Driver) endHandover(h *handover, result error) {
	d.handover = nil
	// Two variants of iptables have the same sets, and each has changed them.
	d.decides().stale, d.dirty = true, true
	h.outcome <- result
	d.log.Info("the change of the backend has ended", "took", time.Since(h.began))
}

// dropOnce takes the stages out of the passes that are for the start alone.
func (d *Driver) dropOnce() {
	for _, r := range slices.Clone(d.runners) {
		if r.Once {
			d.drop(r)
		}
	}
}

// attached returns the attachments, in order of their pods.
func (t *tracker) attached() []model.Update {
	var all []model.Update
	for _, id := range t.pods() {
		if a := t.attachments[id]; a != nil {
			all = append(all, model.AttachmentUpdate{Attachment: a})
		}
	}
	return all
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
