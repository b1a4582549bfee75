package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// handovers carries out changes of the backend. It belongs to the loop.
type handovers struct {
	cfg       *Config
	queue     *queue
	cluster   *cluster.Cluster
	stages    *stages
	scheduler *scheduler
	feed      *feed
}

// begin begins the change to the named backend. outcome gets the result.
func (hs *handovers) begin(name string, outcome chan error) {
	switch {
	case hs.stages.handover != nil:
		outcome <- fmt.Errorf("backend %s: the change to %s is under way (%s)", name, hs.stages.handover.to.Name(), hs.stages.handover.phase())
		return
	case !hs.cluster.InSync() || hs.scheduler.programmed == 0:
		outcome <- fmt.Errorf("backend %s: the agent has not programmed anything yet", name)
		return
	}
	to, err := hs.cfg.Handover.New(name)
	if err != nil {
		outcome <- fmt.Errorf("backend %s: %w", name, err)
		return
	}
	if to.Name() == hs.stages.backend.Name() {
		hs.stages.stays(nil)
		hs.stages.becoming.to = ""
		outcome <- to.Close()
		return
	}
	if to.Why() != "" {
		hs.stages.log().Info("backend detected on this node", "backend", to.Name(), "why", to.Why())
	}
	hs.stages.leftovers.interrupt()
	hs.stages.stays(nil)
	hs.stages.change(&change{
		from: hs.stages.backend, to: to, plan: planOf(hs.stages.backend.Place(), to.Place()), place: to.Place(), way: to.Place().Way(), began: time.Now(), outcome: outcome,
	})
	to.PrepareBeside(hs.stages.backend.Name())
	hs.stages.log().Info("changing the backend", "to", to.Name())
}

// step continues a change of the backend, unless it has to wait for a stage.
func (hs *handovers) step(ctx context.Context) {
	hs.become()
	h := hs.stages.handover
	if h == nil || hs.scheduler.cycle != nil || h.asked || hs.stages.leftovers.removes() {
		return
	}
	switch h.phase() {
	case carrying:
		hs.beside(ctx, h, func(ctx context.Context) error { return hs.cfg.Handover.Migration.Carry(ctx, h.place) })
	case joining:
		hs.join(ctx, h)
	case steering:
		hs.steer(h)
	case settling:
		hs.beside(ctx, h, hs.cfg.Handover.Migration.Settle)
	case following: // and taking over
		hs.follow(ctx, h, hs.stages.decides())
	case retiring:
		hs.retire(ctx, h)
	case leaving:
		hs.leave(ctx, h)
	}
}

// join sends the whole model to the new backend and adds its stage to the cycles.
func (hs *handovers) join(ctx context.Context, h *change) {
	stage := h.to.Stage()
	stage.Required = false // a failure must not stop other stages before it is in force
	h.runner = newRunner(stage, hs.stages.shared)
	hs.feed.flush()
	for _, u := range hs.cluster.Snapshot() {
		h.runner.wants.send(u)
	}
	// The stages of the startup handover serve the first backend only. Leftovers that they have not removed are removed after the change.
	if slices.ContainsFunc(hs.stages.runners, func(r *runner) bool { return r.Name == handover.LeftoversStage }) {
		hs.stages.leftovers.want()
	}
	hs.stages.dropOnce()
	hs.stages.setRunners(slices.Insert(slices.Clone(hs.stages.runners), slices.IndexFunc(hs.stages.runners, h.runner.follows)+1, h.runner))
	hs.stages.listen(ctx, h.runner)
	hs.scheduler.pace.wantNow()
	h.next()
}

// follow applies the new backend until it has all updates of the old one, and then puts it in
// force alone. It runs between cycles, and nothing else starts meanwhile, so the old one
// gets no further updates.
func (hs *handovers) follow(ctx context.Context, h *change, old *runner) {
	switch next := h.runner; {
	case old.running || next.running:
	case next.err != nil: // retried, like any failed stage
		next.again()
	case next.programmed < old.attempted:
		hs.scheduler.start(ctx, next, false)
	default:
		h.next()
		hs.takeOver(h, old)
	}
}

// steer makes the next cycle program forwarding flows that lead packets one step further to the
// handover's enforcement point. The backend there is required from now on, so the cycle
// brings it up to date first.
func (hs *handovers) steer(h *change) {
	if slices.ContainsFunc(hs.stages.runners, func(r *runner) bool { return r.running }) {
		return
	}
	hs.cfg.Handover.Migration.Steer(h.way[0])
	h.runner.Required = h.place == h.to.Place()
	h.asked, h.steered = true, true
	hs.scheduler.pace.wantNow()
}

// beside runs work of the current phase beside the loop. A failure is retried.
func (hs *handovers) beside(ctx context.Context, h *change, work func(context.Context) error) {
	h.asked = true
	wait := time.Duration(0)
	if h.tries > 0 {
		wait = hs.cfg.RetryMin << (h.tries - 1)
	}
	hs.stages.group.Go(func() error {
		pause(ctx, wait)
		limited, cancel := context.WithTimeout(ctx, handover.MigrationTimeout)
		defer cancel()
		err := panics.Guard(func() error { return work(limited) })
		if ctx.Err() != nil {
			return nil
		}
		hs.queue.call(ctx, func() {
			if err == nil {
				h.next()
				return
			}
			hs.stages.panics.With(hs.stages.log(), err).Warn("a step of the change of the backend has failed", "to", h.to.Name(), "step", h.phase(), "error", err)
			if errors.Is(err, conntrack.ErrFull) {
				h.tries = handover.MaxTries // another try finds it full too
			}
			h.failed(fmt.Errorf("%s: %w", h.phase(), err))
		})
		return nil
	})
}

// takeOver puts the new backend in force. The old one's objects stay until the new one was
// applied once more: by then it has the objects that the old one kept for both.
func (hs *handovers) takeOver(h *change, old *runner) {
	hs.stages.drop(old)
	h.runner.Required = true
	h.runner.again()
	hs.stages.enforce(h.to)
	hs.stages.quarantine.Forget(old.Name)
	if hs.cluster.Model().Logs.Reported {
		// The new backend does not report: policyLog turns that on, if it can.
		hs.feed.update(model.LogsUpdate{})
	}
	hs.stages.log().Info("the backend has taken over", "old", h.from.Name(), "after", time.Since(h.began))
}

// retire removes the old backend.
func (hs *handovers) retire(ctx context.Context, h *change) {
	h.asked = true
	hs.remove(ctx, h, h.from, nil)
}

// leave removes a new backend that could not be programmed.
func (hs *handovers) leave(ctx context.Context, h *change) {
	err := fmt.Errorf("backend %s stays in force: %s cannot be programmed: %w", hs.stages.backend.Name(), h.to.Name(), h.err)
	hs.stages.stays(err)
	if h.runner == nil {
		hs.stages.log().Error("the backend is not changed", "to", h.to.Name(), "error", h.err)
		hs.end(ctx, h, errors.Join(err, h.to.Close()))
		return
	}
	if h.runner.running {
		return
	}
	h.asked = true
	hs.stages.drop(h.runner)
	hs.stages.quarantine.Forget(h.runner.Name)
	hs.stages.log().Error("the backend is not changed", "to", h.to.Name(), "error", h.err)
	hs.remove(ctx, h, h.to, err)
}

// remove removes all objects of a backend, beside the loop, and ends the handover. It tries up to maxTries times: leftover
// objects can only deny more, and removeLeftovers goes on after that.
func (hs *handovers) remove(ctx context.Context, h *change, b backend.Backend, result error) {
	keep := hs.stages.backend.Name()
	hs.stages.group.Go(func() error {
		wait := hs.cfg.RetryMin
		for tries := 1; ctx.Err() == nil; tries++ {
			limited, cancel := context.WithTimeout(ctx, handover.MigrationTimeout)
			err := panics.Guard(func() error { return b.Remove(limited, keep) })
			cancel()
			if err != nil {
				err = fmt.Errorf("backend %s is in force, but backend %s cannot be removed: %w", keep, b.Name(), err)
				hs.queue.call(ctx, func() { hs.stages.leftovers.failed(err) })
			}
			if err == nil || tries == handover.MaxTries {
				result = errors.Join(result, err, b.Close()) // the loop may read err still
				hs.queue.call(ctx, func() { hs.end(ctx, h, result) })
				return nil
			}
			hs.stages.panics.With(hs.stages.log(), err).Error("the backend cannot be removed", "removing", b.Name(), "error", err, "retry", wait)
			pause(ctx, wait)
			wait = min(2*wait, hs.cfg.RetryMax)
		}
		return nil
	})
}

func (hs *handovers) end(ctx context.Context, h *change, result error) {
	hs.stages.change(nil)
	switch b := &hs.stages.becoming; h.to.Name() {
	case hs.stages.backend.Name():
		b.ended(nil, false)
	case b.to:
		b.ended(result, h.steered)
	}
	hs.removeLeftovers(ctx)
	// Two variants of iptables share their ipsets, and both have changed them.
	hs.stages.decides().reread()
	hs.scheduler.pace.want()
	hs.scheduler.modules.onForeign()
	h.outcome <- result
	hs.stages.log().Info("the change of the backend has ended", "took", time.Since(h.began))
}

// removeLeftovers removes pending leftovers beside the loop, until that succeeds or the next change of the backend begins.
func (hs *handovers) removeLeftovers(ctx context.Context) {
	l := hs.stages.leftovers
	if !l.pending || l.removes() || hs.cfg.Handover.RemoveOthers == nil {
		return
	}
	keep := hs.stages.backend.Name()
	ctx = l.begin(ctx)
	hs.stages.group.Go(func() error {
		defer hs.queue.call(context.WithoutCancel(ctx), l.end)
		wait := hs.cfg.RetryMin
		for ctx.Err() == nil {
			limited, cancel := context.WithTimeout(ctx, 2*handover.MigrationTimeout)
			err := panics.Guard(func() error { return hs.cfg.Handover.RemoveOthers(limited, keep) })
			cancel()
			if err == nil {
				hs.queue.call(ctx, func() { l.staged(nil) })
				return nil
			}
			if ctx.Err() != nil {
				return nil
			}
			hs.queue.call(ctx, func() { l.failed(err) })
			hs.stages.panics.With(hs.stages.log(), err).Error("objects of a backend that is not in force cannot be removed", "error", err, "retry", wait)
			pause(ctx, wait)
			wait = min(2*wait, hs.cfg.RetryMax)
		}
		return nil
	})
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
