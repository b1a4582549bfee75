package policyflows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/felixlike/felixlike/internal/backoff"
)

// NewConnectionsPerSecond is how many connections a pod may add to the switch's table
// of connections in a second, and in a burst. One client at full speed opened 4,200 to
// 5,100 a second in docs/results/benchmarks/w1.md. A userspace datapath keeps unanswered connections for
// 30 s (TCP) or 60 s (UDP). So one pod uses less than a sixth of its table of 3 million.
const NewConnectionsPerSecond = 8000

// Meters adds and removes the meters of a switch. *openflow.Conn implements it.
type Meters interface {
	Meters(ctx context.Context) (map[uint32]uint64, error)
	AddMeters(ctx context.Context, ids []uint32, perSecond uint32) error
	DeleteMeters(ctx context.Context, ids []uint32) error
	// Err returns why the connection ended, nil while it has not.
	Err() error
}

// Rates keeps a meter in the switch for each pod of a store, which bounds its new
// connections, and RejectMeter while a rule rejects.
type Rates struct {
	store *Store
	// conn is the connection over which known was read.
	conn Meters
	// present are the meters that the switch has, of those that Rates keeps.
	present map[uint32]bool

	// now returns the time.
	now func() time.Time
	// retry is when Around tries again to bound the rates, and pause the time from the
	// last refusal to then.
	retry time.Time
	pause time.Duration

	mu sync.Mutex
	// unbounded is why the rates are not bounded, nil if they are.
	unbounded error
}

// Around tries again after firstRateRetry if the switch has refused meters, then after twice
// as long each time, up to lastRateRetry.
const (
	firstRateRetry = time.Minute
	lastRateRetry  = time.Hour
)

// NewRates returns the meters of a store.
func NewRates(s *Store) *Rates { return &Rates{store: s, now: time.Now} }

// Around adds the meters that the new flows need, programs the flows, and removes the
// meters of the old flows. If the switch refuses meters, or flows with them, Around
// programs the flows without meters, and tries again a minute later or more.
func (r *Rates) Around(ctx context.Context, conn Meters, program func() error) error {
	if r.conn != conn {
		r.conn, r.present, r.pause = conn, nil, 0
		r.setBound(nil)
	}
	if r.Unbounded() != nil {
		if r.now().Before(r.retry) {
			return program()
		}
		r.setBound(nil)
	}
	err := r.addMissing(ctx)
	if err == nil {
		if err = program(); !AboutRates(err) {
			r.pause = 0
			return errors.Join(err, r.removeUnused(ctx, err))
		}
		// Another program has deleted meters, and their flows with them.
		r.present = nil
		if err = r.addMissing(ctx); err == nil {
			if err = program(); !AboutRates(err) {
				r.pause = 0
				return errors.Join(err, r.removeUnused(ctx, err))
			}
		}
	}
	if lost := conn.Err(); lost != nil {
		return fmt.Errorf("openflow connection lost: %w", lost)
	}
	if ctx.Err() != nil {
		return err
	}
	r.pause = backoff.Next(r.pause, firstRateRetry, lastRateRetry)
	r.retry = r.now().Add(r.pause)
	r.setBound(fmt.Errorf("the switch has refused the limit, which needs one meter for each pod (Open vSwitch 2.10, and Linux 4.18 for the kernel's datapath): %w", err))
	return program()
}

// setBound turns the rate limit on, or off with the error that prevents it.
func (r *Rates) setBound(why error) {
	r.store.BoundRates(why == nil)
	r.store.Complete()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unbounded = why
}

// Unbounded returns the reason if the rates have no limit, or nil.
func (r *Rates) Unbounded() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unbounded
}

// addMissing adds the meters that are missing.
func (r *Rates) addMissing(ctx context.Context) error {
	used := r.store.RateMeters()
	if len(used) == 0 {
		return nil
	}
	if r.present == nil {
		known, err := FindRateMeters(ctx, r.conn)
		if err != nil {
			return err
		}
		r.present = known
	}
	missing := without(used, r.present)
	if len(missing) == 0 {
		return nil
	}
	pods := slices.DeleteFunc(slices.Clone(missing), func(id uint32) bool { return id == RejectMeter })
	err := r.conn.AddMeters(ctx, pods, NewConnectionsPerSecond)
	if err == nil && len(pods) < len(missing) {
		err = r.conn.AddMeters(ctx, []uint32{RejectMeter}, AnswersPerSecond)
	}
	if err != nil {
		r.present = nil
		return err
	}
	for _, id := range missing {
		r.present[id] = true
	}
	return nil
}

// removeUnused removes the meters that no flow names any more, once the flows are programmed.
// A meter that the switch does not remove does no harm, and does not fail the pass.
func (r *Rates) removeUnused(ctx context.Context, programmed error) error {
	gone := without(r.present, r.store.RateMeters())
	if programmed != nil || len(gone) == 0 {
		return nil
	}
	err := r.conn.DeleteMeters(ctx, gone)
	for _, id := range gone {
		delete(r.present, id)
	}
	if r.conn.Err() == nil {
		return nil
	}
	return err
}

func without(all, some map[uint32]bool) []uint32 {
	var rest []uint32
	for id := range all {
		if !some[id] {
			rest = append(rest, id)
		}
	}
	slices.Sort(rest)
	return rest
}

// FindRateMeters reads which meters of pods a switch has, and whether it has RejectMeter.
func FindRateMeters(ctx context.Context, conn Meters) (map[uint32]bool, error) {
	all, err := conn.Meters(ctx)
	found := map[uint32]bool{}
	for id := range all {
		if IsRateMeter(id) || id == RejectMeter {
			found[id] = true
		}
	}
	return found, err
}

// AboutRates reports whether an error of the Programmer is that the switch refuses flows
// that bound rates.
func AboutRates(err error) bool {
	for _, r := range reasons(err) {
		if strings.HasPrefix(r.key, rateKeyPrefix) {
			return true
		}
	}
	return false
}
