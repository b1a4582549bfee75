package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// Names of the stages of a startup handover.
const (
	StartupStage   = "startup"
	carryStage     = "carry"
	LeftoversStage = "leftovers"
)

// Startup is the handover at the agent's start, in one step. It may find objects of a backend at the other enforcement point: after a crash during a
// change, or where the agent cannot begin with the backend in force. The
// agent removes the other backend's objects when its own backend is in force. Until then,
// they can only deny more. If the other backend judges at the other enforcement point, it
// judges until the forwarding flows lead packets elsewhere, and connections are migrated as
// in a handover.
type Startup struct {
	Place     backend.Place
	Migration Migration
	// Left reports whether there are objects of a backend at the other enforcement point.
	Left func(ctx context.Context) (bool, error)
	// Remove removes the objects of other backends.
	Remove func(ctx context.Context) error
	Log    *slog.Logger

	// looked is set once left was called, found is its answer.
	looked, found bool
	// forwarding is set once the forwarding flows lead to this backend.
	forwarding bool
	// settled is set once no packet takes the old way, carried once the old connections are
	// migrated.
	settled, carried bool
	// tries counts failures of a step that the agent skips after maxTries.
	tries int
}

// LookTimeout bounds the search for objects of other backends: policy waits for it.
const LookTimeout = 2 * time.Second

// Before is the first stage of all. It migrates connections that only the switch has tracked
// so far, because policy in netfilter may judge their packets next.
func (a *Startup) Before() backend.Stage {
	return backend.Stage{Name: StartupStage, StartupOnly: true, Timeout: MigrationTimeout, Apply: backend.Writes(func(ctx context.Context) (int, error) {
		if a.looked {
			return 0, nil
		}
		limited, cancel := context.WithTimeout(ctx, LookTimeout)
		defer cancel()
		found, err := a.Left(limited)
		if err != nil {
			return 0, a.failed(fmt.Errorf("look for objects of another backend: %w", err), func() { a.looked, a.found = true, true })
		}
		a.looked, a.found, a.tries = true, found, 0
		if !found {
			return 0, nil
		}
		a.Log.Info("another backend was in force: migrating its connections", "to", a.Place)
		if err := a.Migration.Carry(ctx, a.Place); err != nil && !errors.Is(err, conntrack.ErrFull) {
			return 0, err
		}
		return 0, nil // the next stage copies again, and reports a full table
	})}
}

// Between is the stage before the forwarding flows: these lead packets through this
// backend.
func (a *Startup) Between() backend.Stage {
	return backend.Stage{Name: carryStage, Required: true, StartupOnly: true, Timeout: MigrationTimeout, Apply: backend.Writes(func(ctx context.Context) (int, error) {
		switch {
		case !a.looked:
			return 0, fmt.Errorf("waiting for the search for objects of another backend")
		case !a.found || a.forwarding:
			return 0, nil
		}
		if err := a.Migration.Carry(ctx, a.Place); err != nil {
			return 0, a.failed(err, func() { a.found = false })
		}
		a.tries = 0
		return 0, nil
	})}
}

// After is the last stage: the other backend's objects are no longer needed.
func (a *Startup) After() backend.Stage {
	return backend.Stage{Name: LeftoversStage, BestEffort: true, StartupOnly: true, Timeout: 2 * MigrationTimeout, Apply: backend.Writes(func(ctx context.Context) (int, error) {
		if !a.forwarding {
			return 0, nil // the forwarding stage has failed, and its retry runs this stage again
		}
		if err := a.arrive(ctx); err != nil {
			if err := a.failed(err, func() { a.settled, a.carried = true, true }); err != nil {
				return 0, err
			}
		}
		return 0, a.Remove(ctx)
	})}
}

func (a *Startup) arrive(ctx context.Context) error {
	if a.found && !a.settled {
		if err := a.Migration.Settle(ctx); err != nil {
			return err
		}
		a.settled = true
	}
	if a.found && !a.carried {
		if err := a.Migration.Carry(ctx, a.Place); err != nil {
			return err
		}
		a.carried = true
	}
	return nil
}

// Leads notes that the forwarding flows are programmed.
func (a *Startup) Leads() { a.forwarding = true }

// failed returns the error until it has happened maxTries times. Then it logs the error and
// gives the step up. Connections may be lost then, but policy stays complete. It gives a step
// up at once for which the kernel's table of connections has no room: pods must not wait for
// tries that find it full too.
func (a *Startup) failed(err error, giveUp func()) error {
	if a.tries++; a.tries < MaxTries && !errors.Is(err, conntrack.ErrFull) {
		return err
	}
	a.Log.Error("connections of the backend that was in force before may be lost", "error", err)
	a.tries = 0
	giveUp()
	return nil
}
