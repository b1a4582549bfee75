package driver

import (
	"context"
	"fmt"

	"github.com/felixlike/felixlike/felixlike/datastore"
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

// want asks for a removal.
func (l *leftovers) want() { l.pending = true }

// begin begins a removal, which ends at the latest with the context that it returns.
func (l *leftovers) begin(ctx context.Context) context.Context {
	ctx, l.stop = context.WithCancel(ctx)
	return ctx
}

// end ends the removal.
func (l *leftovers) end() {
	l.interrupt()
	l.stop = nil
}

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
