package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// drops has the followers of denied packets. The dataplane reports denied packets while
// there is a follower, and all followers get the same reports.
type drops struct {
	queue   *queue
	feed    *feed
	stages  *stages
	cluster *cluster

	// turn is held by the goroutine that adds or removes a follower.
	turn    chan struct{}
	session *session

	mu        sync.Mutex
	followers map[*follower]struct{}
}

func newDrops(q *queue, f *feed, s *stages, c *cluster) *drops {
	return &drops{queue: q, feed: f, stages: s, cluster: c, turn: make(chan struct{}, 1), followers: map[*follower]struct{}{}}
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
	// missed counts the drops that the follower was too slow for; guarded by drops.mu.
	missed uint64
	// failed gets the reason when no more drops will come.
	failed chan error
}

// send sends drops to all followers.
func (d *drops) send(all []control.Drop) {
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
func (d *drops) fail(err error) {
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
func (d *drops) setReported(ctx context.Context, reported bool) error {
	var noted uint64
	if err := d.queue.ask(ctx, func() {
		d.feed.update(model.DenialsUpdate{Reported: reported})
		noted = d.cluster.tracker.noted
	}); err != nil {
		return err
	}
	err := d.queue.wait(ctx, func() (bool, error) {
		r := d.stages.decides()
		return r != nil && r.programmed >= noted && !r.running, nil
	})
	if err != nil {
		return fmt.Errorf("report denied packets: %w", err)
	}
	return nil
}

// reportsRefused returns the reason if the chains that report are quarantined: then the
// dataplane drops packets without reports.
func (d *drops) reportsRefused(ctx context.Context, b backend.Backend) error {
	refused := b.Denials().Refused()
	err := d.queue.ask(ctx, func() {
		for _, r := range d.stages.quarantine.refused[d.stages.backend.Stage().Name] {
			if r.Object == "chain" && slices.ContainsFunc(b.Renderer().DropChains(), func(c tables.Chain) bool { return c.Name == r.Name }) {
				refused = fmt.Errorf("the kernel refuses the chain that reports: %s", r.Reason)
			}
		}
	})
	return errors.Join(err, refused)
}
