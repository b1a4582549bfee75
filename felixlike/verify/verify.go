// Package verify has the programmed state of the node proved against its policies (setting verify: onResync). The proof is felixctl prove live, in a
// process of its own. The package reads the state of the driver in the driver's loop, and waits beside it. It programs nothing: after a difference, it
// has the driver read everything. It is tested with a made-up proof under a driver here, and with felixctl in test/e2e.
package verify

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/model"
)

const (
	// noticeVerdictsDiffer says that the programmed state gives packets another verdict than the policies.
	noticeVerdictsDiffer = "VerdictsDiffer"
	// share bounds the share of one processor: the pause after a proof is so many times its CPU time.
	share = 50
	// least is the shortest pause after a proof.
	least = 5 * time.Second
)

// Answer is the outcome of one proof.
type Answer struct {
	// Difference describes packets with another verdict than the policies give them.
	Difference string
	// NotProved says what could not be compared, and why. Compared is set if the rest was compared.
	NotProved string
	Compared  bool
	// Classes count the packets that were compared.
	Classes []control.Classes
	// Err says why there is no outcome.
	Err error
	// CPU is the time of processors that the proof used, Memory its largest use of memory in bytes.
	CPU    time.Duration
	Memory int64
}

// result is the outcome in one word, for status and metrics.
func (a Answer) result() string {
	switch {
	case a.Err != nil:
		return metrics.VerifyFailed
	case a.Difference != "":
		return metrics.VerifyDiffers
	case a.NotProved != "":
		return metrics.VerifyNotProved
	}
	return metrics.VerifyEqual
}

// Options are what a Verify uses.
type Options struct {
	// Prove proves once. Child.Prove is the one of the agent.
	Prove func(ctx context.Context) Answer
	// Least is the shortest pause after a proof; 0 is 5 s.
	Least time.Duration
}

// Verify has the programmed state proved after the start and after each resync, once nothing is pending and no stage runs. A proof is abandoned if
// the model or the dataplane changes meanwhile, and repeated. A second proof has to confirm a difference. Then the node is not ready, and the proof is
// repeated until it finds no difference.
type Verify struct {
	Options
	view *driver.View
	// due asks for a proof. It belongs to the loop.
	due bool

	mu     sync.Mutex
	status control.Verify
	// found is the reported difference, or "".
	found string
}

// New returns a Verify that has not started.
func New(v *driver.View, o Options) *Verify {
	if o.Least == 0 {
		o.Least = least
	}
	return &Verify{Options: o, view: v, due: true, status: control.Verify{Mode: config.VerifyOnResync}}
}

// Module returns the module of the proofs.
func (v *Verify) Module() driver.Module {
	return driver.Module{
		Run: v.run, OnResync: func() { v.due = true }, Notices: v.notices,
		Status: func(s *control.Status) { s.Verify = v.now() },
	}
}

// moment identifies a state of model and dataplane.
type moment struct {
	revision uint64
	started  time.Time
	// quarantined is the number of objects that the kernel or the switch has refused.
	quarantined int
}

// same reports whether nothing has changed and nothing was applied since a moment. It runs in the loop.
func (v *Verify) same(m moment) bool {
	return v.view.Idle() && v.view.Attempted() == m.revision && v.view.LastRun().Equal(m.started)
}

// run proves until ctx ends.
func (v *Verify) run(ctx context.Context) error {
	for {
		var m moment
		if v.view.Wait(ctx, func() (bool, error) {
			if !v.due || !v.view.Idle() {
				return false, nil
			}
			v.due, m = false, moment{v.view.Attempted(), v.view.LastRun(), v.view.Quarantined()}
			return true, nil
		}) != nil {
			return nil // the agent ends
		}
		var used time.Duration
		if err := panics.Guard(func() error { used = v.step(ctx, m); return nil }); err != nil {
			v.view.Panicked(err).Error("the proof of the programmed state has panicked", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(v.Least, share*used)):
		}
	}
}

// step proves the state of a moment, and returns the CPU time of that.
func (v *Verify) step(ctx context.Context, m moment) time.Duration {
	began := time.Now()
	a, used, abandoned := Answer{}, time.Duration(0), false
	if m.quarantined > 0 {
		a.NotProved = fmt.Sprintf("quarantine: %d objects are quarantined, and packets that depend on them are dropped whatever the policies say", m.quarantined)
	} else {
		a, used, abandoned = v.prove(ctx, m)
	}
	if ctx.Err() != nil {
		return used
	}
	if abandoned {
		v.view.Metrics().Verified(metrics.VerifyAbandoned, used)
	} else {
		v.view.Metrics().Verified(a.result(), used)
	}
	var differed, differs bool
	v.note(func() {
		if differed = v.found != ""; !abandoned {
			v.take(a, began, used)
		} else {
			v.status.Abandoned++
		}
		differs = v.found != ""
	})
	// Do fails only when the agent ends.
	_ = v.view.Do(ctx, func() {
		v.due = v.due || differs || abandoned
		if differs && !differed {
			v.view.Reread()
		}
	})
	return used
}

// prove proves until the state of the moment changes. A difference is one of two proofs.
func (v *Verify) prove(ctx context.Context, m moment) (a Answer, used time.Duration, abandoned bool) {
	proving, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		if v.view.Wait(proving, func() (bool, error) { return !v.same(m), nil }) == nil {
			cancel()
		}
	})
	a = v.Prove(proving)
	used = a.CPU
	if first := a.Difference; first != "" && proving.Err() == nil {
		a = v.Prove(proving)
		if used += a.CPU; a.Difference == "" {
			v.view.Log().Info("a second proof does not confirm a difference of verdicts", "difference", first)
		}
	}
	same := false
	err := v.view.Do(ctx, func() { same = v.same(m) })
	return a, used, err != nil || !same || proving.Err() != nil
}

// take notes an answer. It needs the lock.
func (v *Verify) take(a Answer, began time.Time, used time.Duration) {
	before := v.status
	v.status = control.Verify{Mode: before.Mode, Result: a.result(), At: began, Took: time.Since(began), CPU: used, Memory: a.Memory, Classes: a.Classes}
	switch {
	case a.Err != nil:
		if v.status.Reason = a.Err.Error(); before.Result != v.status.Result || before.Reason != v.status.Reason {
			v.view.Log().Warn("the programmed state cannot be proved against the policies", "error", a.Err)
		}
	case a.Difference != "":
		if v.found == "" {
			v.view.Log().Error("the programmed state differs from the policies; reading everything again", "difference", a.Difference)
		}
		v.status.Reason, v.found = a.Difference, a.Difference
	default:
		v.status.Reason = a.NotProved
		if v.found != "" && a.Compared {
			v.view.Log().Info("the programmed state agrees with the policies again")
			v.found = ""
		}
	}
}

func (v *Verify) note(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
}

// now returns the module's part of status. It may be called from any goroutine.
func (v *Verify) now() *control.Verify {
	var s control.Verify
	v.note(func() { s = v.status })
	return &s
}

// notices returns the reported difference. It may be called from any goroutine.
func (v *Verify) notices() (all []datastore.Notice) {
	v.note(func() {
		if v.found != "" {
			all = []datastore.Notice{{Kind: noticeVerdictsDiffer, Problem: model.Problem{
				Object: model.NodeRef(v.view.Node()), Reason: fmt.Sprintf("the programmed state differs from the policies: %s", v.found),
			}}}
		}
	})
	return all
}
