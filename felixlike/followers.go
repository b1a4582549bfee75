package felixlike

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
	"github.com/felixlike/felixlike/rules"
)

// drops is who follows what policy denies: the dataplane reports for as long as
// there is somebody. All share what is reported.
type drops struct {
	queue   *queue
	feed    *feed
	stages  *stages
	cluster *cluster

	// turn is held by who begins or ends to follow.
	turn    chan struct{}
	session *session

	mu        sync.Mutex
	followers map[*follower]struct{}
}

func newDrops(q *queue, f *feed, s *stages, c *cluster) *drops {
	return &drops{queue: q, feed: f, stages: s, cluster: c, turn: make(chan struct{}, 1), followers: map[*follower]struct{}{}}
}

// Limits of what is kept for those who are slow.
const (
	// maxReports is what may wait to be given names.
	maxReports = 4096
	// maxWaiting is what may wait for a follower to take it.
	maxWaiting = 1024
	// gather is how long reports wait for others, so that they are given names together.
	gather = 20 * time.Millisecond
	// endWithin is how long the end of following may take before nobody waits for it
	// any more: the dataplane is put right whenever it can be.
	endWithin = 10 * time.Second
	// followWithin is the same for the beginning.
	followWithin = 20 * time.Second
)

// follower is one of them.
type follower struct {
	drops chan control.Drop
	// missed counts what the follower was too slow for; guarded by drops.mu.
	missed uint64
	// failed has why there comes no more.
	failed chan error
}

// tell hands drops to all followers.
func (d *drops) tell(all []control.Drop) {
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

// fail tells all followers that there comes no more.
func (d *drops) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for f := range d.followers {
		select {
		case f.failed <- err:
		default: // told already
		}
	}
}

// setReported has the dataplane report what policy denies, or cease to, and waits
// until it does.
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
		return fmt.Errorf("report what policy denies: %w", err)
	}
	return nil
}

// reportsRefused returns why the dataplane does not report, if what would is set
// aside: then it drops all the same.
func (d *drops) reportsRefused(ctx context.Context, b backend.Backend) error {
	refused := b.Denials().Refused()
	err := d.queue.ask(ctx, func() {
		for _, r := range d.stages.quarantine.refused[d.stages.backend.Stage().Name] {
			if r.Object == "chain" && slices.Contains(rules.DropChains(), r.Name) {
				refused = fmt.Errorf("the kernel refuses what reports: %s", r.Reason)
			}
		}
	})
	return errors.Join(err, refused)
}
