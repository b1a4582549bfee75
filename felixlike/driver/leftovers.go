package driver

import (
	"context"
	"fmt"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/model"
)

// noticeLeftovers says that objects of a backend that is not in force are left.
const noticeLeftovers = "BackendLeftovers"

// leftovers are objects of backends that are not in force. They drop packets by the policies of the time when they were in force, until
// they are removed. The stage leftoversStage removes them at the start. What it or a change of the backend cannot remove is removed here,
// between changes of the backend. It belongs to the loop.
type leftovers struct {
	// pending asks for a removal, err is why the last one failed.
	pending bool
	err     error
	// stop ends the removal that runs; nil if none does.
	stop context.CancelFunc
}

// failed records that objects are left.
func (l *leftovers) failed(err error) { l.pending, l.err = true, err }

// staged takes the outcome of leftoversStage.
func (l *leftovers) staged(err error) { l.pending, l.err = err != nil, err }

// removes reports whether a removal runs. No other backend may be programmed meanwhile.
func (l *leftovers) removes() bool { return l.stop != nil }

// interrupt ends the removal that runs.
func (l *leftovers) interrupt() {
	if l.stop != nil {
		l.stop()
	}
}

// notices says that there are leftovers.
func (l *leftovers) notices(node string) []datastore.Notice {
	if l.err == nil {
		return nil
	}
	return []datastore.Notice{{Kind: noticeLeftovers, Problem: model.Problem{
		Object: model.NodeRef(node),
		Reason: fmt.Sprintf("objects of a backend that is not in force cannot be removed, and go on dropping packets by old policies; the agent tries again: %v", l.err),
	}}}
}

// removeLeftovers removes pending leftovers beside the loop, until that succeeds or the next change of the backend begins.
func (hs *handovers) removeLeftovers(ctx context.Context) {
	l := hs.stages.leftovers
	if !l.pending || l.removes() || hs.cfg.RemoveOthers == nil {
		return
	}
	keep := hs.stages.backend.Name()
	ctx, stop := context.WithCancel(ctx)
	l.stop = stop
	hs.stages.group.Go(func() error {
		defer hs.queue.call(context.WithoutCancel(ctx), func() { l.stop = nil })
		defer stop()
		wait := hs.cfg.RetryMin
		for ctx.Err() == nil {
			limited, cancel := context.WithTimeout(ctx, 2*MigrationTimeout)
			err := panics.Guard(func() error { return hs.cfg.RemoveOthers(limited, keep) })
			cancel()
			if err == nil {
				hs.queue.call(ctx, func() { l.pending, l.err = false, nil })
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
