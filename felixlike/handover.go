package felixlike

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/model"
)

// handover is a change of the backend on a live node. The new backend is built
// beside the old one and read back; only then the old one is removed. While
// both are in force a packet has to pass both, so nothing gets through that
// either denies, and connections that are established go on, since both go by
// the kernel's connection tracking.
type handover struct {
	to     Backend
	runner *runner
	phase  phase
	began  time.Time
	// tries counts what went wrong in this phase.
	tries int
	// outcome is what the asker is told; it is buffered.
	outcome chan error
	err     error
}

// phase is how far a handover is.
type phase uint8

const (
	// joining: the backend waits for the end of a pass to be told the model.
	joining phase = iota + 1
	// building: it is programmed, like all other stages.
	building
	// verifying: it is read back; nothing may differ from what is wanted.
	verifying
	// following: it is programmed with what came while it was verified.
	following
	// retiring: the old backend has left the passes and is removed.
	retiring
	// failing: the new backend is taken out again.
	failing
)

// String returns the phase as status shows it.
func (p phase) String() string {
	switch p {
	case joining, building:
		return "building"
	case verifying, following:
		return "verifying"
	case retiring:
		return "removing the old"
	case failing:
		return "giving up"
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// maxTries bounds how often a backend may fail before it has taken over.
const maxTries = 5

// SetBackend moves policy to the named backend and waits until nothing of the
// old one is left. The change goes on if ctx ends first. If the new backend
// cannot be programmed, or what is read back differs, the old one stays in
// force and the error says why.
func (d *Driver) SetBackend(ctx context.Context, name string) error {
	outcome := make(chan error, 1)
	d.call(ctx, func() { d.beginHandover(name, outcome) })
	select {
	case err := <-outcome:
		return err
	case <-d.stopped:
		return errStopped
	case <-ctx.Done():
		return fmt.Errorf("waiting for backend %s: %w", name, ctx.Err())
	}
}

func (d *Driver) beginHandover(name string, outcome chan error) {
	switch {
	case d.handover != nil:
		outcome <- fmt.Errorf("backend %s: the change to %s is under way (%s)", name, d.handover.to.Name, d.handover.phase)
		return
	case !d.inSync():
		outcome <- fmt.Errorf("backend %s: the agent has not programmed anything yet", name)
		return
	}
	to, err := d.cfg.NewBackend(name)
	if err != nil {
		outcome <- fmt.Errorf("backend %s: %w", name, err)
		return
	}
	if to.Name == d.backend.Name {
		outcome <- to.close()
		return
	}
	if to.Why != "" {
		d.log.Info("chosen by what is on this node", "backend", to.Name, "why", to.Why)
	}
	d.handover = &handover{to: to, phase: joining, began: time.Now(), outcome: outcome}
	d.log.Info("changing the backend", "to", to.Name)
}

// stepHandover goes on with a change of the backend where it does not have to
// wait for a stage.
func (d *Driver) stepHandover(ctx context.Context) {
	h := d.handover
	if h == nil || d.pass != nil {
		return
	}
	switch h.phase {
	case joining:
		d.join(ctx, h)
	case following:
		d.follow(ctx, h, d.decides())
	case failing:
		if slices.Contains(d.runners, h.runner) && !h.runner.running {
			d.leave(ctx, h)
		}
	}
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
		d.retire(ctx, h, old)
	}
}

// join tells the new backend the whole model and lets it take part.
func (d *Driver) join(ctx context.Context, h *handover) {
	stage := h.to.Stage
	stage.Required = false // it must not hold anything back before it decides
	h.runner = newRunner(stage, d.shared)
	d.flush()
	for _, u := range d.engine.Snapshot() {
		h.runner.wants.tell(u)
	}
	if d.nodeLost { // it stays in force
		h.runner.wants.tell(model.NodeUpdate{Node: d.tracker.nodes[d.cfg.Node]})
	}
	for _, u := range d.tracker.attached() {
		h.runner.wants.tell(u)
	}
	// It keeps the backend that was in force first, and no other one. What it had
	// not removed, an agent that starts does.
	d.setRunners(slices.DeleteFunc(slices.Clone(d.runners), func(r *runner) bool { return r.Name == leftoversStage }))
	d.setRunners(slices.Insert(slices.Clone(d.runners), slices.Index(d.runners, d.decides())+1, h.runner))
	d.listen(ctx, h.runner)
	d.dirty, d.nextApply = true, time.Now()
	h.phase = building
}

// note takes the outcome of a run of the new backend.
func (h *handover) note(o outcome) {
	if h == nil || o.runner != h.runner || h.phase != building && h.phase != verifying && h.phase != following {
		return
	}
	switch {
	case o.err != nil:
		h.err = o.err
		h.tries++
	case len(o.applied.Refused) > 0:
		h.err = fmt.Errorf("%s %s: %s", o.applied.Refused[0].Object, o.applied.Refused[0].Name, o.applied.Refused[0].Reason)
		h.tries = maxTries
	case h.phase == building:
		h.phase, h.tries = verifying, 0
	case h.phase == following:
		h.tries = 0
	case o.full && o.applied.Writes == 0:
		h.phase, h.tries = following, 0
	default:
		h.err = fmt.Errorf("what was read back differed from what was programmed, in %d places", o.applied.Writes)
		h.tries++
	}
	if h.tries >= maxTries {
		h.phase = failing
		return
	}
	if h.phase == verifying {
		h.runner.stale, h.runner.wanted = true, true
	}
}

// verifies reports whether the runner is to be compared with what it was told
// before: its managers are told nothing new until then.
func (h *handover) verifies(r *runner) bool {
	return h != nil && h.runner == r && h.phase == verifying
}

// retire lets the new backend decide alone, and removes the old one.
func (d *Driver) retire(ctx context.Context, h *handover, old *runner) {
	from := d.backend
	h.phase = retiring
	d.drop(old)
	h.runner.Required = true
	d.backend = h.to
	d.backend.decides()
	d.quarantine.forget(old.Name, h.to.Renderer)
	d.log = d.cfg.Log.With("component", "driver", "backend", h.to.Name)
	d.log.Info("the backend has taken over; removing the old one", "old", from.Name, "after", time.Since(h.began))
	d.remove(ctx, h, from, nil)
}

// leave takes a new backend out again that could not be programmed.
func (d *Driver) leave(ctx context.Context, h *handover) {
	d.drop(h.runner)
	d.quarantine.forget(h.runner.Name, d.backend.Renderer)
	d.log.Error("the backend is not changed", "to", h.to.Name, "error", h.err)
	d.remove(ctx, h, h.to, fmt.Errorf("backend %s stays in force: %s cannot be programmed: %w", d.backend.Name, h.to.Name, h.err))
}

// decides returns the runner of the backend that is in force.
func (d *Driver) decides() *runner {
	for _, r := range d.runners {
		if r.Name == d.backend.Stage.Name {
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
func (d *Driver) remove(ctx context.Context, h *handover, b Backend, result error) {
	d.group.Go(func() error {
		wait := d.cfg.RetryMin
		for ctx.Err() == nil {
			err := b.Remove(ctx, d.backend.Name)
			if err == nil {
				err = b.close()
				d.call(ctx, func() { d.endHandover(h, errors.Join(result, err)) })
				return nil
			}
			d.log.Error("the backend cannot be removed", "removing", b.Name, "error", err, "retry", wait)
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
