// Package verify has the programmed state of the node proved against its policies (setting verify). The proof is felixctl prove live, in a process of its
// own. The package reads the state of the driver in the driver's loop, and waits beside it. It programs nothing: after a difference, it
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
	"github.com/felixlike/felixlike/internal/backoff"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/model"
)

const (
	// noticeVerdictsDiffer says that the programmed state gives packets another verdict than the policies.
	noticeVerdictsDiffer = "VerdictsDiffer"
	// share bounds the share of one processor: the pause after a proof is so many times its CPU time.
	share = 50
	// least is the shortest pause after a proof. After abandoned proofs it doubles, up to longest.
	least, longest = 5 * time.Second, time.Minute
	// patience is how long a proof may be due until status says that none ends, and how long a difference that no proof confirms again keeps the node
	// not ready.
	patience = 10 * time.Minute
	// mostAbandoned is the number of abandoned proofs in a row until status says that none ends.
	mostAbandoned = 10
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
	// EveryChange has each change of the programmed state proved, not only after a resync.
	EveryChange bool
	// Least is the shortest pause after a proof; 0 is 5 s. Patience bounds the time without a result; 0 is 10 min.
	Least, Patience time.Duration
}

// Verify has the programmed state proved after the start, after each resync and after a change of the backend, once nothing is pending and no stage
// runs. With EveryChange, it is also proved after updates of the model and writes of a stage: one proof follows all changes of a pause. A proof is
// abandoned if the model or the dataplane changes meanwhile, and repeated. A second proof has to confirm a difference. Then the node is not ready, and the
// proof is repeated until it finds no difference.
type Verify struct {
	Options
	view *driver.View
	// due asks for a proof, and last is the moment of the last one. They belong to the loop.
	due  bool
	last moment

	mu     sync.Mutex
	status control.Verify
	// found is the reported difference, or "", and seen when it was confirmed last. unconfirmed says why no proof has compared the state since.
	found, unconfirmed string
	seen               time.Time
	// ended is the time of the last result, waiting since when a proof without a result is due; zero if none is.
	ended, waiting time.Time
}

// New returns a Verify that has not started.
func New(v *driver.View, o Options) *Verify {
	if o.Least == 0 {
		o.Least = least
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	mode := config.VerifyOnResync
	if o.EveryChange {
		mode = config.VerifyEveryChange
	}
	return &Verify{Options: o, view: v, due: true, status: control.Verify{Mode: mode}, ended: time.Now()}
}

// Module returns the module of the proofs.
func (v *Verify) Module() driver.Module {
	return driver.Module{
		Run: v.run, OnResync: func() { v.due = true }, Status: func(s *control.Status) { s.Verify = v.now() },
		Notices:        func() []datastore.Notice { return v.notices(true) },
		ObjectProblems: func() []datastore.Notice { return v.notices(false) },
	}
}

// moment identifies a state of model and dataplane.
type moment struct {
	revision, changes uint64
	backend           string
	// quarantined is the number of objects that the kernel or the switch has refused.
	quarantined int
}

// moment returns the present moment. It runs in the loop.
func (v *Verify) moment() moment {
	return moment{v.view.Attempted(), v.view.Changes(), v.view.Backend().Name(), v.view.Quarantined()}
}

// run proves until ctx ends.
func (v *Verify) run(ctx context.Context) error {
	for {
		var m moment
		if v.view.Wait(ctx, func() (ready bool, err error) {
			m, ready = v.next()
			return ready, nil
		}) != nil {
			return nil // the agent ends
		}
		pause := v.Least
		if err := panics.Guard(func() error { pause = v.step(ctx, m); return nil }); err != nil {
			v.view.Panicked(err).Error("the proof of the programmed state has panicked", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// next reports whether a proof is due and can begin, and the moment. It runs in the loop.
func (v *Verify) next() (m moment, ready bool) {
	m = v.moment()
	if v.due = v.due || m.backend != v.last.backend || v.EveryChange && m != v.last; !v.due {
		return m, false
	}
	v.note(func() {
		switch {
		case v.waiting.IsZero():
			v.waiting = time.Now()
		case time.Since(v.waiting) > v.Patience:
			v.late()
		}
	})
	if !v.view.Idle() {
		return m, false
	}
	v.due, v.last = false, m
	return m, true
}

// step proves the state of a moment, and returns the pause after that.
func (v *Verify) step(ctx context.Context, m moment) (pause time.Duration) {
	began := time.Now()
	a, used, abandoned := Answer{}, time.Duration(0), false
	if m.quarantined > 0 {
		a.NotProved = fmt.Sprintf("quarantine: %d objects are quarantined, and packets that depend on them are dropped whatever the policies say", m.quarantined)
	} else {
		a, used, abandoned = v.prove(ctx, m)
	}
	if ctx.Err() != nil {
		return 0
	}
	var differed, differs bool
	v.note(func() {
		differed = v.found != ""
		if abandoned {
			v.abandon(used)
		} else {
			v.take(a, m, began, used)
		}
		differs = v.found != ""
		pause = max(share*used, backoff.After(v.status.Abandoned, v.Least, longest))
	})
	// Do fails only when the agent ends.
	_ = v.view.Do(ctx, func() {
		v.due = v.due || differs || abandoned
		if differs && !differed {
			v.view.Reread()
		}
	})
	return pause
}

// prove proves, and abandons that when the state of the moment changes. A difference is one of two proofs.
func (v *Verify) prove(ctx context.Context, m moment) (a Answer, used time.Duration, abandoned bool) {
	proving, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		if v.view.Wait(proving, func() (bool, error) { return v.moment() != m, nil }) == nil {
			cancel()
		}
	})
	a = v.Prove(proving)
	used = a.CPU
	first := a.Difference
	if first != "" && proving.Err() == nil {
		a = v.Prove(proving)
		used += a.CPU
	}
	// A stage that runs now may have written something during the proof.
	same := false
	err := v.view.Wait(ctx, func() (bool, error) {
		same = v.moment() == m
		return !same || v.view.Idle(), nil
	})
	abandoned = err != nil || !same || proving.Err() != nil
	switch {
	case first == "" || ctx.Err() != nil:
	case abandoned:
		v.view.Log().Info("objects or the node's state changed before a second proof could confirm a difference of verdicts", "difference", first)
	case a.Difference == "":
		v.view.Log().Info("a second proof does not confirm a difference of verdicts", "difference", first)
	}
	return a, used, abandoned
}

// abandon notes an abandoned proof. It needs the lock.
func (v *Verify) abandon(used time.Duration) {
	v.view.Metrics().Verified(metrics.VerifyAbandoned, used)
	v.status.Abandoned++
	if v.unconfirmed == "" {
		v.unconfirmed = "objects or the node's state changed during each proof"
	}
	if v.status.Abandoned%mostAbandoned == 0 {
		v.late()
	}
}

// late notes that no proof ends. It needs the lock.
func (v *Verify) late() {
	v.view.Metrics().Verified(metrics.VerifyNotProved, 0)
	reason := "no proof has ended since " + v.ended.UTC().Format(time.RFC3339)
	if v.status.Reason != reason {
		v.view.Log().Warn("the programmed state is not proved against the policies", "reason", reason, "abandoned", v.status.Abandoned)
	}
	v.status = control.Verify{Mode: v.status.Mode, Result: metrics.VerifyNotProved, Reason: reason, Abandoned: v.status.Abandoned}
	v.waiting, v.unconfirmed = time.Now(), reason
}

// take notes an answer. It needs the lock.
func (v *Verify) take(a Answer, m moment, began time.Time, used time.Duration) {
	v.view.Metrics().Verified(a.result(), used)
	before := v.status
	v.status = control.Verify{
		Mode: before.Mode, Result: a.result(), Backend: m.backend, At: began, Took: time.Since(began), CPU: used, Memory: a.Memory, Classes: a.Classes,
	}
	v.ended, v.waiting = time.Now(), time.Time{}
	switch {
	case a.Err != nil:
		if v.status.Reason = a.Err.Error(); before.Result != v.status.Result || before.Reason != v.status.Reason {
			v.view.Log().Warn("the programmed state cannot be proved against the policies", "error", a.Err)
		}
	case a.Difference != "":
		if v.found == "" {
			v.view.Log().Error("the programmed state differs from the policies; reading everything again", "difference", a.Difference)
		}
		v.status.Reason, v.found, v.seen = a.Difference, a.Difference, v.ended
	default:
		v.status.Reason = a.NotProved
		if v.found != "" && a.Compared {
			v.view.Log().Info("the programmed state agrees with the policies again")
			v.found = ""
		}
	}
	if v.unconfirmed = ""; !a.Compared && a.Difference == "" {
		v.unconfirmed = v.status.Reason
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

// notices returns the reported difference if it keeps the node not ready, or if it no longer does because no proof confirms it. It may be called from any
// goroutine.
func (v *Verify) notices(unready bool) (all []datastore.Notice) {
	v.note(func() {
		if v.found == "" || unready != (v.unconfirmed == "" || time.Since(v.seen) <= v.Patience) {
			return
		}
		reason := "the programmed state differs from the policies: " + v.found
		if v.unconfirmed != "" {
			reason += fmt.Sprintf(" (last seen at %s; not compared since: %s)", v.seen.UTC().Format(time.RFC3339), v.unconfirmed)
		}
		all = []datastore.Notice{{Kind: noticeVerdictsDiffer, Problem: model.Problem{Object: model.NodeRef(v.view.Node()), Reason: reason}}}
	})
	return all
}
