package probe

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options of a Prober. The zero value of each means its default.
type Options struct {
	// Timeout bounds the wait for an answer before a flow counts
	// as blocked.
	Timeout time.Duration
	// Parallel bounds the flows that are tried at the same time.
	Parallel int
	// Rate is the number of flows begun per second. Too many for the userspace
	// datapath overflow its socket buffers, which then looks like policy.
	Rate int
}

// Defaults of Options.
const (
	DefaultTimeout  = time.Second
	DefaultParallel = 600
	DefaultRate     = 2500
)

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Parallel <= 0 {
		o.Parallel = DefaultParallel
	}
	if o.Rate <= 0 {
		o.Rate = DefaultRate
	}
	return o
}

// retries are the moments, in parts of the timeout, at which a flow that has
// no answer yet is tried again: a packet that was lost under load must not
// look blocked.
func retries(timeout time.Duration) []time.Duration {
	return []time.Duration{0, timeout / 4, timeout * 6 / 10}
}

// Run tries all flows and returns their outcomes in order. It ends early, with
// the rest not tried, when ctx does.
func Run(ctx context.Context, flows []Flow, options Options) []Outcome {
	options = options.withDefaults()
	outcomes := make([]Outcome, len(flows))
	stalls := watchStalls()
	defer stalls.stop()
	var group errgroup.Group
	group.SetLimit(options.Parallel)
	start, spacing := time.Now(), time.Second/time.Duration(options.Rate)
	for i, flow := range flows {
		if wait := time.Until(start.Add(time.Duration(i) * spacing)); wait > 0 {
			time.Sleep(wait)
		}
		group.Go(func() error {
			outcomes[i] = try(ctx, flow, options.Timeout, stalls)
			return nil
		})
	}
	_ = group.Wait() // outcomes carry the errors
	return outcomes
}

func try(ctx context.Context, flow Flow, timeout time.Duration, stalls *stallWatch) Outcome {
	answers := make(chan answer, 1)
	x, err := flow.exchange(answers)
	if err != nil {
		return Outcome{Reason: err.Error(), Err: err}
	}
	defer x.close()
	deadline := newDeadline(stalls)
	attempts := 0
	for _, at := range append(retries(timeout), timeout) {
		a, err := deadline.wait(ctx, at, answers)
		switch {
		case err != nil:
			return Outcome{Reason: err.Error(), Err: err, Attempts: attempts}
		case a != nil:
			return Outcome{Through: a.through, Reason: a.reason, RTT: a.rtt, Attempts: attempts}
		case at == timeout:
			return Outcome{Reason: NoAnswer, Attempts: attempts}
		}
		if err := x.try(); err != nil && attempts == 0 {
			return Outcome{Reason: err.Error(), Err: err}
		}
		attempts++
	}
	return Outcome{Reason: NoAnswer, Attempts: attempts}
}

// stallWatch adds up the time during which this process did not get the
// processor. Packets wait meanwhile, so it does not count against a timeout.
type stallWatch struct {
	done  chan struct{}
	mu    sync.Mutex
	total time.Duration
}

const (
	stallTick = 5 * time.Millisecond
	// stallNoise bounds the delay of a tick on a machine that is merely busy.
	stallNoise = 15 * time.Millisecond
)

func watchStalls() *stallWatch {
	w := &stallWatch{done: make(chan struct{})}
	go func() {
		for last := time.Now(); ; {
			select {
			case <-w.done:
				return
			case <-time.After(stallTick):
			}
			now := time.Now()
			if late := now.Sub(last) - stallTick; late > stallNoise {
				w.mu.Lock()
				w.total += late
				w.mu.Unlock()
			}
			last = now
		}
	}()
	return w
}

func (w *stallWatch) stop() { close(w.done) }

func (w *stallWatch) sum() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// deadline measures time since its start without stalls.
type deadline struct {
	stalls  *stallWatch
	start   time.Time
	stalled time.Duration
}

func newDeadline(stalls *stallWatch) *deadline {
	return &deadline{stalls: stalls, start: time.Now(), stalled: stalls.sum()}
}

func (d *deadline) elapsed() time.Duration {
	return time.Since(d.start) - (d.stalls.sum() - d.stalled)
}

// wait waits for an answer until the given time after the start.
func (d *deadline) wait(ctx context.Context, until time.Duration, answers <-chan answer) (*answer, error) {
	for {
		left := until - d.elapsed()
		if left <= 0 {
			select {
			case a := <-answers:
				return &a, nil
			default:
				return nil, ctx.Err()
			}
		}
		timer := time.NewTimer(left)
		select {
		case a := <-answers:
			timer.Stop()
			return &a, nil
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}
