package policyflows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// NewConnectionsPerSecond is how many connections a pod may add to the switch's table
// of connections in a second, and in a burst. One client that opens connections as fast
// as it can reached 3,500 a second in docs/benchmarks/w1.md. Of these, the ones that
// nobody answers stay for 30 s (TCP) or 60 s (UDP) in a userspace datapath, so that one
// pod takes less than a sixth of its table of 3 million.
const NewConnectionsPerSecond = 8000

// Meters are those of a switch. *openflow.Conn has them.
type Meters interface {
	Meters(ctx context.Context) (map[uint32]uint64, error)
	AddMeters(ctx context.Context, ids []uint32, perSecond uint32) error
	DeleteMeters(ctx context.Context, ids []uint32) error
	// Err returns why the connection ended, nil while it has not.
	Err() error
}

// Rates keeps a meter in the switch for each pod of a store, which bounds its new
// connections.
type Rates struct {
	store *Store
	// conn is the connection over which known was read.
	conn Meters
	// known are the meters of pods that the switch has.
	known map[uint32]bool

	mu sync.Mutex
	// unbounded is why the rates are not bounded, nil if they are.
	unbounded error
}

// NewRates returns the meters of a store.
func NewRates(s *Store) *Rates { return &Rates{store: s} }

// Around programs flows between the meters that they need and the removal of those that
// they needed before. A switch that refuses meters, or flows with them, is programmed
// without.
func (r *Rates) Around(ctx context.Context, conn Meters, program func() error) error {
	if r.conn != conn {
		r.conn, r.known = conn, nil
		r.bound(nil)
	}
	err := r.add(ctx)
	if err == nil {
		if err = program(); !AboutRates(err) {
			return errors.Join(err, r.remove(ctx, err))
		}
		// Somebody has deleted meters, and their flows with them.
		r.known = nil
		if err = r.add(ctx); err == nil {
			if err = program(); !AboutRates(err) {
				return errors.Join(err, r.remove(ctx, err))
			}
		}
	}
	if lost := conn.Err(); lost != nil {
		return fmt.Errorf("openflow connection lost: %w", lost)
	}
	if ctx.Err() != nil {
		return err
	}
	r.bound(fmt.Errorf("the switch takes no meter for each pod (Open vSwitch 2.10, and in the kernel Linux 4.18): %w", err))
	return program()
}

// bound has the rates bounded, or not because of an error.
func (r *Rates) bound(why error) {
	r.store.BoundRates(why == nil)
	r.store.Complete()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unbounded = why
}

// Unbounded returns why the rates are not bounded, nil if they are.
func (r *Rates) Unbounded() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unbounded
}

// add adds the meters that are missing.
func (r *Rates) add(ctx context.Context) error {
	wanted := r.store.RateMeters()
	if len(wanted) == 0 {
		return nil
	}
	if r.known == nil {
		known, err := FindRateMeters(ctx, r.conn)
		if err != nil {
			return err
		}
		r.known = known
	}
	missing := without(wanted, r.known)
	if len(missing) == 0 {
		return nil
	}
	if err := r.conn.AddMeters(ctx, missing, NewConnectionsPerSecond); err != nil {
		r.known = nil
		return err
	}
	for _, id := range missing {
		r.known[id] = true
	}
	return nil
}

// remove removes the meters that no flow names any more, once the flows are programmed.
// A meter that the switch does not remove does no harm, and does not fail the pass.
func (r *Rates) remove(ctx context.Context, programmed error) error {
	gone := without(r.known, r.store.RateMeters())
	if programmed != nil || len(gone) == 0 {
		return nil
	}
	err := r.conn.DeleteMeters(ctx, gone)
	for _, id := range gone {
		delete(r.known, id)
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

// FindRateMeters reads which meters of pods a switch has.
func FindRateMeters(ctx context.Context, conn Meters) (map[uint32]bool, error) {
	all, err := conn.Meters(ctx)
	found := map[uint32]bool{}
	for id := range all {
		if IsRateMeter(id) {
			found[id] = true
		}
	}
	return found, err
}
