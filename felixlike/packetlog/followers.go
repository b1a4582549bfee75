package packetlog

import (
	"context"
	"errors"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/driver"
)

// Drops implements control.Agent. It calls got with each drop, and with nil at least once per alive, until ctx ends.
func (d *Denied) Drops(ctx context.Context, alive time.Duration, got func(*control.Drop) error) error {
	f := &follower{drops: make(chan control.Drop, maxWaiting), failed: make(chan error, 1)}
	if err := d.begin(ctx, f); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
		defer cancel()
		if err := d.end(ctx, f); err != nil && !errors.Is(err, driver.ErrStopped) {
			d.view.Log().Warn("the dataplane may still report denied packets although no client follows them", "error", err)
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
		case <-d.view.Stopped():
			return driver.ErrStopped
		case err := <-f.failed:
			return err
		case drop := <-f.drops:
			err = got(&drop)
		case <-tick.C:
			err = got(nil)
		}
		if err == nil {
			err = d.sendMissed(f, got)
		}
		if err != nil {
			return err
		}
	}
}

// sendMissed sends a follower the number of drops that it was too slow for.
func (d *Denied) sendMissed(f *follower, got func(*control.Drop) error) error {
	d.mu.Lock()
	missed := f.missed
	f.missed = 0
	d.mu.Unlock()
	if missed == 0 {
		return nil
	}
	return got(&control.Drop{At: time.Now(), NotShown: missed})
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
func (d *Denied) begin(ctx context.Context, f *follower) error {
	ctx, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	release, err := d.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if d.session == nil {
		s, err := d.newSession(ctx)
		if err != nil {
			return err
		}
		d.session = s
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.followers[f] = struct{}{}
	return nil
}

// end removes a follower. After the last one, the dataplane stops reporting.
func (d *Denied) end(ctx context.Context, f *follower) error {
	release, err := d.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	d.mu.Lock()
	delete(d.followers, f)
	left := len(d.followers)
	d.mu.Unlock()
	if left > 0 || d.session == nil {
		return nil
	}
	d.session.stop()
	d.session = nil
	return d.setReported(ctx, false)
}
