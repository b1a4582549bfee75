// Package packetlog has the two streams of single packets: denied packets (Denied), which clients and the History follow, and packets that rules with Log
// decide (Log). Both listen to the backend in force, have it report while it is asked to, and add pods and policies from the model. It is
// tested with a dataplane that reports a test's packets here, and with packets in test/e2e.
package packetlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Denied has the followers of denied packets. The dataplane reports denied packets while
// there is a follower, and all followers get the same reports.
type Denied struct {
	view *driver.View
	// turn is held by the goroutine that adds or removes a follower.
	turn    chan struct{}
	session *session
	// always is set if the dataplane is to report without a follower, too: the History of this agent, or of the next one, wants it.
	always bool
	stream stream[control.Drop]
}

// NewDenied returns the stream of denied packets.
func NewDenied(v *driver.View) *Denied {
	return &Denied{view: v, turn: make(chan struct{}, 1), stream: stream[control.Drop]{
		count:  func(d control.Drop) uint64 { return d.NotShown },
		missed: func(packets uint64) control.Drop { return control.Drop{At: time.Now(), NotShown: packets} },
	}}
}

// Limits of the queues of slow readers.
const (
	// maxReports bounds the reports that wait for names.
	maxReports = 4096
	// gather is how long a report waits for others, so that they get names together.
	gather = 20 * time.Millisecond
	// If all followers are patient, reports wait namesShare times as long as the last ones took, at most longGather.
	namesShare = 100
	longGather = 20 * time.Second
	// endWithin bounds the wait until the dataplane stops reporting. After that, it stops
	// with a later apply.
	endWithin = 10 * time.Second
	// followWithin bounds the wait until the dataplane begins to report.
	followWithin = 20 * time.Second
)

// setReported turns the dataplane's reports of denied packets on or off, and waits until this
// is programmed.
func (d *Denied) setReported(ctx context.Context, reported bool) error {
	err := program(ctx, d.view, func() {
		if d.view.Model().Denials.Reported != reported {
			d.view.Update(model.DenialsUpdate{Reported: reported})
		}
	})
	if err != nil {
		return fmt.Errorf("report denied packets: %w", err)
	}
	return nil
}

// program changes the model, and waits until the backend in force has programmed it.
func program(ctx context.Context, v *driver.View, change func()) error {
	var revision uint64
	if err := v.Do(ctx, func() {
		change()
		revision = v.Attempted()
	}); err != nil {
		return err
	}
	return v.Wait(ctx, func() (bool, error) { return v.Programmed(revision), nil })
}

// reportsRefused returns the reason if the chains that report are quarantined: then the
// dataplane drops packets without reports.
func (d *Denied) reportsRefused(ctx context.Context, b backend.Backend) error {
	refused := b.Denials().Refused()
	err := d.view.Do(ctx, func() {
		for _, r := range d.view.Refused() {
			if r.Object == "chain" && slices.ContainsFunc(b.Renderer().DropChains(), func(c tables.Chain) bool { return c.Name == r.Name }) {
				refused = fmt.Errorf("the kernel refuses the chain that reports: %s", r.Reason)
			}
		}
	})
	return errors.Join(err, refused)
}

// Drops implements control.Agent. It calls got with each drop, and with nil at least once per alive, until ctx ends.
func (d *Denied) Drops(ctx context.Context, alive time.Duration, got func(*control.Drop) error) error {
	f := newFollower[control.Drop](maxWaiting)
	if err := d.begin(ctx, f); err != nil {
		return err
	}
	defer d.leave(ctx, f)
	return d.stream.follow(ctx, d.view, f, alive, got)
}

// leave removes a follower, also if ctx has ended.
func (d *Denied) leave(ctx context.Context, f *follower[control.Drop]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	if err := d.end(ctx, f); err != nil && !errors.Is(err, driver.ErrStopped) {
		d.view.Log().Warn("the dataplane may still report denied packets although no client follows them", "error", err)
	}
}

// take takes the turn, and returns the function that releases it.
func (d *Denied) take(ctx context.Context) (release func(), err error) {
	select {
	case d.turn <- struct{}{}:
		return func() { <-d.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin adds a follower. For the first one, the dataplane begins to report.
func (d *Denied) begin(ctx context.Context, f *follower[control.Drop]) error {
	ctx, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	release, err := d.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if d.session != nil && d.session.hasFailed() { // a client that takes nothing keeps it
		d.session.stop()
		d.session = nil
	}
	if d.session == nil {
		s, err := d.newSession(ctx)
		if err != nil {
			return err
		}
		d.session = s
	}
	if !f.patient {
		d.session.flush(ctx) // what came before is not for this one
	}
	d.stream.add(f)
	return nil
}

// end removes a follower. After the last one, the dataplane stops reporting, unless it is to report always.
func (d *Denied) end(ctx context.Context, f *follower[control.Drop]) error {
	release, err := d.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if d.stream.remove(f) > 0 || d.session == nil {
		return nil
	}
	d.session.stop()
	d.session = nil
	if d.always {
		return nil
	}
	return d.setReported(ctx, false)
}
