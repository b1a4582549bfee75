package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

const (
	// becomeRetryMin and becomeRetryMax bound the wait before the change to the configured backend is tried again. Each try programs all of it.
	becomeRetryMin = time.Minute
	becomeRetryMax = 30 * time.Minute
	// giveUpAfter is how long the backend that an agent found in force may fail before the agent begins with the configured one.
	giveUpAfter = time.Minute
)

// ErrFoundFails says that the backend which the agent found in force cannot be programmed. The agent has to begin with the configured one.
var ErrFoundFails = errors.New("the backend that was in force cannot be programmed")

// becoming is the change to the configured backend of an agent that began with the one in force. A command that changes the backend ends it. It belongs to
// the loop.
type becoming struct {
	// to is the configured backend, empty once it or one of a command is in force. failing is when the backend that was found has failed first, zero if it
	// has not.
	to      string
	failing time.Time
	// trying is set while a try is under way. due is when the next one begins after a failure, zero if a command has to begin it, wait the time between the
	// two, and err the reason.
	trying bool
	due    time.Time
	wait   time.Duration
	err    error
}

// become begins the change to the configured backend once everything is programmed, and again after a failure.
func (hs *handovers) become() {
	b := &hs.stages.becoming
	waits := b.err != nil && (b.due.IsZero() || time.Now().Before(b.due))
	if b.to == "" || b.trying || waits || hs.stages.handover != nil || !hs.cluster.InSync() || hs.scheduler.programmed == 0 {
		return
	}
	b.trying = true
	outcome := make(chan error, 1)
	hs.begin(b.to, outcome)
	if hs.stages.handover == nil { // refused; else it ends by itself
		b.ended(<-outcome, false)
	}
}

// ended notes the end of a try. If packets had been led to the other enforcement point and back, there is no other one without a command: each could cost
// connections.
func (b *becoming) ended(err error, steered bool) {
	b.trying, b.err = false, err
	if err == nil {
		b.to = ""
		return
	}
	b.wait = min(max(2*b.wait, becomeRetryMin), becomeRetryMax)
	if b.due = time.Now().Add(b.wait); steered {
		b.due = time.Time{}
	}
}

// fails returns ErrFoundFails if nothing has been programmed since the start because the backend that was found fails. It waits for Open vSwitch.
func (hs *handovers) fails() error {
	b, r := &hs.stages.becoming, hs.stages.decides()
	switch {
	case b.to == "" || hs.scheduler.programmed > 0 || r == nil || r.err == nil:
	case backend.NoSwitch(r.err):
		b.failing = time.Time{}
	case b.failing.IsZero():
		b.failing = time.Now()
	case time.Since(b.failing) > giveUpAfter:
		return fmt.Errorf("%w: %s: %v", ErrFoundFails, hs.stages.backend.Name(), r.err) // an error of a context would end the agent
	}
	return nil
}

// notices says that the configured backend is not in force. changing is set while it is built. Pods can be added meanwhile.
func (b *becoming) notices(node, inForce string, programmed, changing bool) []datastore.Notice {
	if b.to == "" {
		return nil
	}
	n := datastore.Notice{Adds: true, Problem: model.Problem{Object: model.NodeRef(node)}}
	again := "at " + b.due.UTC().Format(time.RFC3339)
	if b.due.IsZero() {
		again = "by felixctl backend set"
	}
	switch {
	case b.err != nil && !changing:
		n.Kind, n.Reason = noticeUnchanged, fmt.Sprintf("the configured backend %s is not in force, and is tried again %s: %v", b.to, again, b.err)
	case programmed:
		n.Reason = fmt.Sprintf("backend %s was in force when the agent started: the change to the configured backend %s is under way", inForce, b.to)
	default:
		n.Reason = fmt.Sprintf("backend %s was in force when the agent started: the change to the configured backend %s follows once all is programmed", inForce, b.to)
	}
	return []datastore.Notice{n}
}
