// Package revalidate ends connections that a change has made wrong: established ones that policy denies now (Connections), and flows whose packets
// go on with another source than they must have (Translations). Each has a goroutine of its own, beside the driver's loop and the stages. It is
// tested with made-up connections under a driver here, and with packets in test/e2e.
package revalidate

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/ends"
	"github.com/felixlike/felixlike/internal/backoff"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// Established lists and ends the connections of pods that policy has allowed.
type Established interface {
	// Through lists the live ones, from the kernel or the switch.
	Through(ctx context.Context, inSwitch bool) ([]conntrack.Connection, error)
	// Disallow takes the mark of allowed connections from some of them, and returns their number.
	Disallow(ctx context.Context, inSwitch bool, all []conntrack.Connection) (int, error)
}

const (
	// judgeBatch is the number of connections that are judged and ended together.
	judgeBatch = 1024
	// judgeAtOnce bounds how long the loop waits for a walk that judges connections: by large policies, a batch
	// takes seconds.
	judgeAtOnce = 5 * time.Millisecond
	// maxRest bounds the pause after a walk. A pause is as long as the walk before: under a storm of
	// changes, walks take half of one processor at most.
	maxRest = 400 * time.Millisecond
	// walkAgain is the wait for the end of a change of the backend.
	walkAgain = 100 * time.Millisecond
)

// Connections ends the established connections that a change of policy denies
// (existingConnections: revalidate). It has a goroutine of its own, beside the loop and the stages.
//
//	loop: an update -------> kept in changed
//	loop: policy applied --> wake --> walk: pods whose verdicts may have changed
//	                                        their connections, from the kernel or the switch
//	                                        judged by the model; denied ones lose their mark
//
// A walk begins when the dataplane has the change. So a connection that it ends cannot get its mark back. If the
// model is ahead of the dataplane, the later change has a walk of its own.
//
// The first apply counts as a change for all pods: policy may have changed while no agent ran. So does a copy of
// connections to the other enforcement point: a copy has the marks that connections had at the one before.
type Connections struct {
	view *driver.View
	// established is nil if connections are kept.
	established Established
	services    []netip.Prefix
	timing      driver.Timing
	wake        chan struct{}

	// flushing has the updates of the flush under way, with the model's revisions. It belongs to the loop.
	flushing []revisedUpdate

	mu sync.Mutex
	verdicts
	// programmed is the newest count that the dataplane has.
	programmed    uint64
	running, last *control.Walk
	ended         uint64
}

type revisedUpdate struct {
	model.Update
	revision uint64
}

// NewConnections ends the connections that policy denies. established is nil if they are kept; services are the prefixes of Service addresses in
// the settings.
func NewConnections(v *driver.View, established Established, services []netip.Prefix, timing driver.Timing) *Connections {
	return &Connections{view: v, established: established, services: services, timing: timing, wake: make(chan struct{}, 1), verdicts: newVerdicts()}
}

// Module returns the module of the connections.
func (r *Connections) Module() driver.Module {
	m := driver.Module{Status: func(s *control.Status) { s.ExistingConnections = r.status() }}
	if r.established != nil {
		m.Run, m.OnUpdate, m.OnFlush, m.OnEnforced = r.run, r.onUpdate, r.flushed, r.applied
	}
	return m
}

// onUpdate notes an update, until flushed. It runs in the loop.
func (r *Connections) onUpdate(u model.Update, revision uint64) {
	r.flushing = append(r.flushing, revisedUpdate{u, revision})
}

// flushed takes the updates of a flush of the engine. A policy that is not partial any more has changed, also if
// the engine has no update of it. It runs in the loop.
func (r *Connections) flushed(partial map[model.PolicyID]bool, revision uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.flushing {
		r.take(u.Update, u.revision)
	}
	r.flushing = nil
	if r.setPartial(partial, revision) {
		r.nudge()
	}
}

// applied takes the count of updates that the dataplane has. It runs in the loop.
func (r *Connections) applied(revision uint64) {
	r.mu.Lock()
	r.programmed = max(r.programmed, revision)
	wait := len(r.changed) > 0
	r.mu.Unlock()
	if wait {
		r.nudge()
	}
}

// Carried notes that connections were copied to an enforcement point, or may have been: all pods have changed. It
// is for any goroutine.
func (r *Connections) Carried() {
	if r.established == nil {
		return
	}
	r.mu.Lock()
	for id := range r.endpoints {
		if _, waits := r.changed[id]; !waits {
			r.changed[id] = 0 // the dataplane has the policy
		}
	}
	r.mu.Unlock()
	r.nudge()
}

func (r *Connections) nudge() {
	select {
	case r.wake <- struct{}{}:
	default: // it will walk anyway
	}
}

// run walks after changes, until ctx ends.
func (r *Connections) run(ctx context.Context) error {
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		began := time.Now()
		var again bool
		err := panics.Guard(func() (err error) { again, err = r.walk(ctx); return err })
		rest := min(time.Since(began), maxRest)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			failures++
			rest = backoff.After(failures, r.timing.RetryMin, r.timing.RetryMax)
			r.view.Log().Warn("connections that policy denies may continue", "error", err, "retry", rest)
		case again:
			rest = walkAgain
		default:
			failures = 0
		}
		if err != nil || again {
			r.nudge()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

// look returns the site, or nil if there cannot be a walk now.
func (r *Connections) look(ctx context.Context) (s *site, err error) {
	err = r.view.Do(ctx, func() {
		at := ends.Look(r.view, r.services)
		if at == nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		s = &site{Site: at, programmed: r.programmed}
	})
	return s, err
}

// walk looks at the connections of the pods whose verdicts may have changed. It returns true if it has to be
// called again although nothing has changed.
func (r *Connections) walk(ctx context.Context) (again bool, err error) {
	s, err := r.look(ctx)
	if err != nil || s == nil {
		return s == nil, err
	}
	began := time.Now()
	due, affected := r.due(s)
	if len(due) == 0 {
		return false, nil
	}
	w := control.Walk{At: began, Pods: len(affected)}
	completed := false // not after a panic
	defer func() {
		w.Took = time.Since(began)
		if err != nil {
			w.Error = err.Error()
		}
		r.note(due, w, completed && err == nil)
	}()
	if len(affected) > 0 {
		err = r.end(ctx, s, affected, &w)
	}
	completed = true
	return false, err
}

// end ends the connections of the affected pods that policy denies. What cannot be read is an error, and the rest
// is judged.
func (r *Connections) end(ctx context.Context, s *site, affected map[netip.Addr]bool, w *control.Walk) error {
	all, unread := r.established.Through(ctx, s.InSwitch)
	all = slices.DeleteFunc(all, func(k conntrack.Connection) bool {
		from, to, _ := s.Of(&k)
		return !affected[from] && !affected[to]
	})
	for part := range slices.Chunk(all, judgeBatch) {
		denied := r.denied(s, part)
		ended, err := r.established.Disallow(ctx, s.InSwitch, denied)
		w.Looked, w.Denied, w.Ended = w.Looked+len(part), w.Denied+len(denied), w.Ended+ended
		r.progress(*w, len(all), ended)
		if err != nil {
			return err
		}
	}
	return unread
}

// due takes the changes that the dataplane has, and returns them with the addresses of the pods that they
// affect.
func (r *Connections) due(s *site) (due map[any]uint64, affected map[netip.Addr]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verdicts.due(s)
}

// denied returns the connections that policy denies.
func (r *Connections) denied(s *site, all []conntrack.Connection) []conntrack.Connection {
	var denied []conntrack.Connection
	for len(all) > 0 {
		judged := r.judgeSome(s, all, &denied)
		all = all[judged:]
	}
	return denied
}

// judgeSome judges the first connections, for judgeAtOnce, and returns their number. It adds the denied ones.
func (r *Connections) judgeSome(s *site, all []conntrack.Connection, denied *[]conntrack.Connection) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	began := time.Now()
	for i := range all {
		if i > 0 && time.Since(began) > judgeAtOnce {
			return i
		}
		if r.verdicts.denies(s, &all[i]) {
			*denied = append(*denied, all[i])
		}
	}
	return len(all)
}

// progress notes how far a walk is.
func (r *Connections) progress(w control.Walk, of, ended int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.Of, w.Took = of, time.Since(w.At)
	r.running = &w
	r.ended += uint64(ended)
}

// note notes the end of a walk. Unless it has completed, its changes wait for the next one.
func (r *Connections) note(due map[any]uint64, w control.Walk, completed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.Of = w.Looked
	if r.running != nil {
		w.Of = r.running.Of
	}
	r.running, r.last = nil, &w
	if !completed {
		for id, at := range due {
			r.changed[id] = max(r.changed[id], at)
		}
		return
	}
	if w.Ended > 0 {
		r.view.Log().Info("connections that policy denies now are ended", "looked", w.Looked, "ended", w.Ended, "took", w.Took)
	}
}

// status is for any goroutine.
func (r *Connections) status() control.ExistingConnections {
	if r.established == nil {
		return control.ExistingConnections{Mode: config.Keep}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return control.ExistingConnections{Mode: config.Revalidate, Pending: len(r.changed), Ended: r.ended, Running: r.running, Last: r.last}
}
