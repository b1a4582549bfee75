package election

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/felixlike/felixlike/felixlike/leases"
)

// session is the time in which this node renews its Lease without a gap.
type session struct {
	// own is the Lease of this node as it was written last, nil if that is not known.
	own *leases.Lease
	// until is the end of the session, zero without one. next is when the Lease is to be renewed.
	until, next time.Time
}

func (s *session) alive() bool { return !s.until.IsZero() }

// over reports whether there is a session whose time has passed.
func (s *session) over(now time.Time) bool { return s.alive() && !now.Before(s.until) }

// renew writes the Lease of this node.
func (s *session) renew(ctx context.Context, all Leases, node string, t Timing) error {
	ctx, cancel := context.WithTimeout(ctx, t.Request)
	defer cancel()
	s.next = time.Now().Add(t.Renew)
	l, err := s.own, error(nil)
	if l == nil {
		l, err = all.Get(ctx, nodeLease(node).Name)
	}
	if apierrors.IsNotFound(err) {
		l, err = nodeLease(node), nil
	}
	if err == nil {
		l.Hold(node, t.Expiry)
		err = all.Put(ctx, l)
	}
	if err != nil {
		s.own, s.next = nil, time.Now().Add(min(t.Renew, t.Retry))
		return err
	}
	s.own = l
	return nil
}

// extend extends the session, or begins one. began is a time before the renewal. An answer that comes after the time of its renewal is worth nothing.
func (s *session) extend(began time.Time, valid time.Duration) {
	if until := began.Add(valid); time.Now().Before(until) {
		s.until = until
	}
}
