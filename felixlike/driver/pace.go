package driver

import (
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/backoff"
)

// pace decides when the next cycle starts: cycles have a least distance, and a failed one is
// repeated after a wait that grows.
type pace struct {
	timing *Timing
	// dirty asks for a cycle.
	dirty bool
	// oldestPending is the time of the oldest revision of the datastore that is not programmed, or zero.
	oldestPending time.Time
	lastApply     control.Apply
	nextApply     time.Time
	retry         time.Duration
	retryAt       time.Time // the end of the wait
}

// want asks for a cycle.
func (p *pace) want() { p.dirty = true }

// wantNow asks for a cycle at once.
func (p *pace) wantNow() { p.dirty, p.nextApply = true, time.Now() }

// batch asks for a cycle that programs a new revision of the datastore.
func (p *pace) batch() {
	p.dirty = true
	if p.oldestPending.IsZero() {
		p.oldestPending = time.Now()
	}
}

// update asks for a cycle with a new change, which does not wait for the retry of a failed cycle.
func (p *pace) update() {
	p.dirty = true
	p.notAfter(p.lastApply.At.Add(p.timing.Throttle))
}

// notAfter moves the next cycle to a time, unless it is due earlier.
func (p *pace) notAfter(at time.Time) {
	if at.Before(p.nextApply) {
		p.nextApply = at
	}
}

// retryNow ends the wait after a failed cycle, and the growth of the waits.
func (p *pace) retryNow() {
	if p.retry > 0 {
		p.forget()
		p.nextApply = time.Now()
	}
}

// forget ends the growth of the waits.
func (p *pace) forget() { p.retry, p.retryAt = 0, time.Time{} }

// succeeded notes an apply that has just ended.
func (p *pace) succeeded(started time.Time) {
	p.lastApply = control.Apply{At: started, Duration: time.Since(started)}
	p.nextApply = started.Add(p.timing.Throttle)
}

// failed notes an apply that has just failed, and returns the time until the retry. The wait doubles
// only if the failed apply began after the wait before: changes and notices start applies
// earlier, and a switch that restarts sends many notices.
func (p *pace) failed(started time.Time, err error) (wait time.Duration) {
	now := time.Now()
	p.lastApply = control.Apply{At: started, Duration: now.Sub(started), Error: err.Error()}
	p.dirty = true
	if !started.Before(p.retryAt) {
		p.retry = backoff.Next(p.retry, p.timing.RetryMin, p.timing.RetryMax)
		p.retryAt = now.Add(p.retry)
	}
	p.nextApply = later(p.retryAt, now.Add(p.timing.RetryMin))
	return p.nextApply.Sub(now)
}
