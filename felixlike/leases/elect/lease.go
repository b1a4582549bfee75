package elect

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/felixlike/felixlike/felixlike/leases"
)

// lease is the Lease as one candidate sees it. Its methods are for one goroutine.
type lease struct {
	leases   leases.Client
	name     string
	identity string
	duration time.Duration
	// seen is the version of another holder's Lease that was read last, since the time
	// it was read first. Clocks of nodes differ, so renewTime decides nothing.
	seen  string
	since time.Time
}

// try takes or renews the Lease, and reports whether this candidate holds it.
func (l *lease) try(ctx context.Context) (bool, error) {
	o, err := l.leases.Get(ctx, l.name)
	switch {
	case apierrors.IsNotFound(err):
		o = &leases.Lease{Name: l.name}
	case err != nil:
		return false, err
	}
	if holder := o.Holder(); holder != "" && holder != l.identity {
		if l.seen != o.Version {
			l.seen, l.since = o.Version, time.Now()
		}
		if time.Since(l.since) < o.Duration(l.duration) {
			return false, nil
		}
	}
	o.Hold(l.identity, l.duration)
	err = l.leases.Put(ctx, o)
	// A conflict says that another one was faster.
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// release gives the Lease up, if this candidate holds it: the next one need not wait.
func (l *lease) release(ctx context.Context) error {
	o, err := l.leases.Get(ctx, l.name)
	if err != nil || o.Holder() != l.identity {
		return err
	}
	o.Hold("", l.duration)
	return l.leases.Put(ctx, o)
}

// Sleep reports whether the time has passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
