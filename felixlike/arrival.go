package felixlike

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
)

// Names of the stages of an arrival.
const (
	arrivalStage   = "arrival"
	carryStage     = "carry"
	leftoversStage = "leftovers"
)

// arrival is the start of an agent, which may find the work of another backend
// than its own: after a restart with another setting, or after a crash in the
// middle of a change. What the other one has left goes when this one is in
// place. Until then it only ever denies more; but if it judges packets in the other
// place, it does so until the forwarding flows lead elsewhere, and connections
// are carried as in a handover.
type arrival struct {
	place    backend.Place
	crossing Crossing
	// left reports whether a backend of the other place has left something.
	left func(ctx context.Context) (bool, error)
	// remove removes what other backends have left.
	remove func(ctx context.Context) error
	log    *slog.Logger

	// looked tells that left was asked, found what it said.
	looked, found bool
	// forwarding tells that the forwarding flows lead to this backend.
	forwarding bool
	// settled tells that no packet goes elsewhere, carried that the connections
	// of before are known here.
	settled, carried bool
	// tries counts failures of what does not hold the agent up for ever.
	tries int
}

// lookTimeout bounds the look at what is left: policy waits for it.
const lookTimeout = 2 * time.Second

// before is the stage ahead of all others. Policy in netfilter may judge
// packets of connections that only the switch has known so far.
func (a *arrival) before() backend.Stage {
	return backend.Stage{Name: arrivalStage, Once: true, Timeout: crossingTimeout, Apply: writes(func(ctx context.Context) (int, error) {
		if a.looked {
			return 0, nil
		}
		limited, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		found, err := a.left(limited)
		if err != nil {
			return 0, a.failed(fmt.Errorf("look for what another backend has left: %w", err), func() { a.looked, a.found = true, true })
		}
		a.looked, a.found, a.tries = true, found, 0
		if !found {
			return 0, nil
		}
		a.log.Info("another backend was in force: its connections are carried over", "to", a.place)
		return 0, a.crossing.Carry(ctx, a.place)
	})}
}

// between is the stage ahead of that of the forwarding flows, which lead
// packets through this backend from then on.
func (a *arrival) between() backend.Stage {
	return backend.Stage{Name: carryStage, Required: true, Once: true, Timeout: crossingTimeout, Apply: writes(func(ctx context.Context) (int, error) {
		switch {
		case !a.looked:
			return 0, fmt.Errorf("not before it is known what another backend has left")
		case !a.found || a.forwarding:
			return 0, nil
		}
		if err := a.crossing.Carry(ctx, a.place); err != nil {
			return 0, a.failed(err, func() { a.found = false })
		}
		a.tries = 0
		return 0, nil
	})}
}

// after is the last stage: nothing of another backend is needed any more.
func (a *arrival) after() backend.Stage {
	return backend.Stage{Name: leftoversStage, Aside: true, Once: true, Timeout: 2 * crossingTimeout, Apply: writes(func(ctx context.Context) (int, error) {
		if !a.forwarding {
			return 0, nil // it is told why, and tried again
		}
		if err := a.arrive(ctx); err != nil {
			if err := a.failed(err, func() { a.settled, a.carried = true, true }); err != nil {
				return 0, err
			}
		}
		return 0, a.remove(ctx)
	})}
}

func (a *arrival) arrive(ctx context.Context) error {
	if a.found && !a.settled {
		if err := a.crossing.Settle(ctx); err != nil {
			return err
		}
		a.settled = true
	}
	if a.found && !a.carried {
		if err := a.crossing.Carry(ctx, a.place); err != nil {
			return err
		}
		a.carried = true
	}
	return nil
}

// leads notes that the forwarding flows are programmed.
func (a *arrival) leads() { a.forwarding = true }

// failed returns the error, until it has happened too often: then it is logged
// and given up. Connections may be lost by it, and no policy is.
func (a *arrival) failed(err error, giveUp func()) error {
	if a.tries++; a.tries < maxTries {
		return err
	}
	a.log.Error("connections of before may be lost", "error", err)
	a.tries = 0
	giveUp()
	return nil
}
