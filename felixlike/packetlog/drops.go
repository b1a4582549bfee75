// Package packetlog has the two streams of single packets: denied packets, while a client follows them (Denied), and packets that rules with Log
// decide (Log). Both listen to the backend in force, have it report while it is asked to, and add pods and policies from the model. It is
// tested with a dataplane that reports a test's packets here, and with packets in test/e2e.
package packetlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

	mu        sync.Mutex
	followers map[*follower]struct{}
}

// NewDenied returns the stream of denied packets.
func NewDenied(v *driver.View) *Denied {
	return &Denied{view: v, turn: make(chan struct{}, 1), followers: map[*follower]struct{}{}}
}

// Limits of the queues of slow readers.
const (
	// maxReports bounds the reports that wait for names.
	maxReports = 4096
	// maxWaiting bounds the drops that wait for one follower.
	maxWaiting = 1024
	// gather is how long a report waits for others, so that they get names together.
	gather = 20 * time.Millisecond
	// endWithin bounds the wait until the dataplane stops reporting. After that, it stops
	// with a later apply.
	endWithin = 10 * time.Second
	// followWithin bounds the wait until the dataplane begins to report.
	followWithin = 20 * time.Second
)

// follower is one client that gets denied packets.
type follower struct {
	drops chan control.Drop
	// missed counts the drops that the follower was too slow for; guarded by Denied.mu.
	missed uint64
	// failed gets the reason when no more drops will come.
	failed chan error
}

// send sends drops to all followers.
func (d *Denied) send(all []control.Drop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for f := range d.followers {
		for _, drop := range all {
			select {
			case f.drops <- drop:
			default:
				f.missed += max(1, drop.NotShown)
			}
		}
	}
}

// fail ends all followers with an error.
func (d *Denied) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for f := range d.followers {
		select {
		case f.failed <- err:
		default: // it has an error already
		}
	}
}

// setReported turns the dataplane's reports of denied packets on or off, and waits until this
// is programmed.
func (d *Denied) setReported(ctx context.Context, reported bool) error {
	if err := program(ctx, d.view, func() { d.view.Update(model.DenialsUpdate{Reported: reported}) }); err != nil {
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
