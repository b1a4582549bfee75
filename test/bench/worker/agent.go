package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/driver"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// settle bounds the wait for one apply: far more than a first load takes on a
// busy machine.
const settle = 2 * time.Minute

// noCheck is longer than any run.
const noCheck = 1000 * time.Hour

var errRecheck = errors.New("the benchmark asks for a full read")

// agent is a running driver with its observer.
type agent struct {
	source   *source
	observer *observer
	view     *driver.View
	throttle time.Duration
	stop     context.CancelFunc
	done     chan error
	// begin is when the driver began.
	begin mark
	// updates is the number that the last pass had seen, applied the time of its start.
	updates int
	applied time.Time
}

// start starts a driver over the workload. The objects exist already: the
// measurement begins with their delivery.
func start(ctx context.Context, b backend.Backend, w workload.Workload, ovs Switch) *agent {
	return startSource(ctx, b, newSource(w), ovs, false)
}

// startSource starts a driver over a source, which isolates namespaces if that is set.
func startSource(ctx context.Context, b backend.Backend, s *source, ovs Switch, isolation bool) *agent {
	ctx, stop := context.WithCancel(ctx)
	timing := driver.DefaultTiming()
	// A periodic check in the middle of something else would be measured as part
	// of it. The worker asks for its checks.
	timing.Resync = noCheck
	a := &agent{
		source: s, observer: newObserver(ovs), view: &driver.View{}, stop: stop, done: make(chan error, 1),
		throttle: timing.Throttle,
	}
	d := driver.New(driver.Config{
		Cluster: cluster.Config{Node: workload.Node, Isolation: isolation}, Backend: b,
		Inputs: driver.Inputs{Source: a.source, Attachments: a.source.attach},
		Stages: []backend.Stage{a.observer.around(b.Stage())},
		View:   a.view,
		Log:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Timing: timing,
	})
	a.begin = ovs.now()
	go func() { a.done <- d.Run(ctx) }()
	return a
}

// close ends the driver. Its rules stay.
func (a *agent) close() error {
	a.stop()
	return <-a.done
}

// next waits for an apply that the condition holds for. One that fails, or
// that sets anything aside, is an error: its figures would mean nothing.
func (a *agent) next(ctx context.Context, wanted func(pass) bool) (pass, error) {
	timeout := time.NewTimer(settle)
	defer timeout.Stop()
	for {
		select {
		case p := <-a.observer.passes:
			switch {
			case p.err != nil:
				return p, fmt.Errorf("apply: %w", p.err)
			case len(p.applied.Refused) > 0:
				r := p.applied.Refused[0]
				return p, fmt.Errorf("apply: %s %s was refused: %s", r.Object, r.Name, r.Reason)
			}
			a.applied = p.stage
			found := wanted(p)
			a.updates = p.updates
			if found {
				return p, nil
			}
		case err := <-a.done:
			a.done <- err
			return pass{}, fmt.Errorf("the driver has stopped: %w", err)
		case <-ctx.Done():
			return pass{}, ctx.Err()
		case <-timeout.C:
			return pass{}, fmt.Errorf("nothing was applied for %s", settle)
		}
	}
}

// change makes one change and waits until it is in the kernel. It comes when
// the driver is free to apply it at once, after a pause: changes that come
// faster share an apply, and would be measured by their throttle.
func (a *agent) change(ctx context.Context, send func()) (pass, time.Duration, error) {
	a.pause()
	before := time.Now()
	send()
	seen := a.updates
	p, err := a.next(ctx, func(p pass) bool { return p.updates > seen })
	return p, p.done.at.Sub(before), err
}

// recheck makes the stage read the kernel's state in full.
func (a *agent) recheck(ctx context.Context) (pass, time.Duration, error) {
	a.pause()
	before := time.Now()
	a.observer.reread.Store(true)
	a.view.Post(ctx, func() { a.view.Lost(errRecheck) })
	p, err := a.next(ctx, func(p pass) bool { return p.applied.Full })
	return p, p.done.at.Sub(before), err
}

// repair has another program make a change, and waits until it is undone. notified
// is the part of the time before the driver was notified of it.
func (a *agent) repair(ctx context.Context, change func() (time.Time, error)) (p pass, wall, notified time.Duration, err error) {
	a.pause()
	before, err := change()
	if err != nil {
		return pass{}, 0, 0, err
	}
	p, err = a.next(ctx, func(p pass) bool { return len(p.applied.Repaired) > 0 })
	if err != nil {
		return p, 0, 0, err
	}
	first := slices.MinFunc(p.applied.Repaired, func(a, b tables.Repair) int { return a.Noticed.Compare(b.Noticed) })
	return p, p.done.at.Sub(before), first.Noticed.Sub(before), nil
}

// pause waits until the driver is free to apply at once.
func (a *agent) pause() {
	time.Sleep(time.Until(a.applied.Add(a.throttle + 200*time.Microsecond)))
}
