// Package handover has what moves policy from one backend to another without breaking connections, and the handover at an agent's start. A change of
// the backend while the agent runs belongs to the loop of felixlike/driver (its handover.go).
//
// The stages of a start at which a backend with the other enforcement point may be in force, in the order of the stages of the agent:
//
//	startup: is there one? --no--------------------------> leftovers: remove all other backends
//	          | yes                                            ^
//	          v                                                |
//	         copy connections --> policy --> carry: copy --> forwarding flows --> leftovers: settle, copy
package handover

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// Config is what changes of the backend need.
type Config struct {
	// New makes the named backend.
	New func(name string) (backend.Backend, error)
	// Migration moves packets and connections between backends with different enforcement points.
	Migration Migration
	// RemoveOthers removes the objects of all backends but the named one. It may be nil.
	RemoveOthers func(ctx context.Context, keep string) error
}

// Migration moves packets to another enforcement point without breaking connections. Each
// enforcement point has its own connection tracking.
type Migration interface {
	// Carry copies the connections that the other enforcement point allowed to this one. It may
	// be repeated: it leaves existing entries unchanged.
	Carry(ctx context.Context, to backend.Place) error
	// Steer sets the desired forwarding flows to those of a mode, one of backend.Place's Way. It is called between cycles.
	Steer(mode pipeline.Mode)
	// Settle returns once no packet takes the old forwarding flows.
	Settle(ctx context.Context) error
}

// MigrationTimeout bounds one step of a migration. Copying a hundred thousand connections
// takes seconds.
const MigrationTimeout = 30 * time.Second

// MaxTries bounds how often a phase may fail.
const MaxTries = 5
