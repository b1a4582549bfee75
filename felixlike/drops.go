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
	// turn is held by who begins or ends to follow.
	turn    chan struct{}
	session *session

	mu        sync.Mutex
	followers map[*follower]struct{}
}

func newDrops() *drops {
	return &drops{turn: make(chan struct{}, 1), followers: map[*follower]struct{}{}}
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

// Drops implements control.Agent.
func (d *Driver) Drops(ctx context.Context, alive time.Duration, got func(*control.Drop) error) error {
	f := &follower{drops: make(chan control.Drop, maxWaiting), failed: make(chan error, 1)}
	if err := d.beginFollowing(ctx, f); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
		defer cancel()
		if err := d.endFollowing(ctx, f); err != nil && !errors.Is(err, errStopped) {
			d.log.Warn("denied packets may be reported for longer than somebody follows them", "error", err)
		}
	}()
	if err := got(nil); err != nil {
		return err
	}
	tick := time.NewTicker(alive)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-d.stopped:
			return errStopped
		case err := <-f.failed:
			return err
		case drop := <-f.drops:
			err = got(&drop)
		case <-tick.C:
			err = got(nil)
		}
		if err == nil {
			err = d.drops.tellMissed(f, got)
		}
		if err != nil {
			return err
		}
	}
}

// tellMissed tells a follower what it was too slow for.
func (s *drops) tellMissed(f *follower, got func(*control.Drop) error) error {
	s.mu.Lock()
	missed := f.missed
	f.missed = 0
	s.mu.Unlock()
	if missed == 0 {
		return nil
	}
	return got(&control.Drop{At: time.Now(), NotShown: missed})
}

// tell hands drops to all followers.
func (s *drops) tell(all []control.Drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
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
func (s *drops) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
		select {
		case f.failed <- err:
		default: // told already
		}
	}
}

// take takes the turn, and returns what gives it back.
func (s *drops) take(ctx context.Context) (release func(), err error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// beginFollowing adds a follower. The first one has the dataplane report.
func (d *Driver) beginFollowing(ctx context.Context, f *follower) error {
	ctx, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	release, err := d.drops.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if d.drops.session == nil {
		s, err := d.newSession(ctx)
		if err != nil {
			return err
		}
		d.drops.session = s
	}
	d.drops.mu.Lock()
	defer d.drops.mu.Unlock()
	d.drops.followers[f] = struct{}{}
	return nil
}

// endFollowing takes a follower away. With the last one the dataplane ceases to
// report.
func (d *Driver) endFollowing(ctx context.Context, f *follower) error {
	release, err := d.drops.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	d.drops.mu.Lock()
	delete(d.drops.followers, f)
	left := len(d.drops.followers)
	d.drops.mu.Unlock()
	if left > 0 || d.drops.session == nil {
		return nil
	}
	d.drops.session.stop()
	d.drops.session = nil
	return d.setReported(ctx, false)
}

// setReported has the dataplane report what policy denies, or cease to, and waits
// until it does.
func (d *Driver) setReported(ctx context.Context, reported bool) error {
	var noted uint64
	if err := d.ask(ctx, func() {
		d.update(model.DenialsUpdate{Reported: reported})
		noted = d.tracker.noted
	}); err != nil {
		return err
	}
	_, err := d.wait(ctx, func() (bool, error) {
		r := d.decides()
		return r != nil && r.programmed >= noted && !r.running, nil
	})
	if err != nil {
		return fmt.Errorf("report what policy denies: %w", err)
	}
	return nil
}

// reportsRefused returns why the dataplane does not report, if what would is set
// aside: then it drops all the same.
func (d *Driver) reportsRefused(ctx context.Context, b backend.Backend) error {
	refused := b.Denials().Refused()
	err := d.ask(ctx, func() {
		for _, r := range d.quarantine.refused[d.backend.Stage().Name] {
			if r.Object == "chain" && slices.Contains(rules.DropChains(), r.Name) {
				refused = fmt.Errorf("the kernel refuses what reports: %s", r.Reason)
			}
		}
	})
	return errors.Join(err, refused)
}
