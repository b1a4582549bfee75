package driver

import (
	"context"
	"log/slog"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
)

// AttachmentSource delivers the attached pods: first a snapshot of updates, then one call
// of synced, then changes, until ctx ends.
type AttachmentSource func(ctx context.Context, update func(model.Update), synced func()) error

// Inputs are what the driver learns objects and pods from.
type Inputs struct {
	Source      datastore.Source
	Attachments AttachmentSource
}

// Config has the parts of a Driver.
type Config struct {
	// Cluster has this node's name, and settings about the cluster.
	Cluster cluster.Config
	Inputs  Inputs
	// Backend judges packets; its stage is among the Stages. Becomes is the name of the configured backend, if Backend is one that an agent before has left in
	// force at the other enforcement point: the driver changes to it. Else it is empty. Handover is what a change needs.
	Backend  backend.Backend
	Becomes  string
	Handover handover.Config
	// View is bound to the driver. Modules use it.
	View    *View
	Modules []Module
	// Managers serve all stages without managers of their own.
	Managers []managers.Manager
	// Stages are programmed in this order.
	Stages []backend.Stage
	Log    *slog.Logger
	Timing
}

// Timing holds the driver's intervals.
type Timing struct {
	// Throttle is the least time between the starts of two applies. A change
	// after a quiet time is applied at once; a storm is applied in batches.
	Throttle time.Duration
	// Resync is the time between two full reads of the dataplane.
	Resync time.Duration
	// RetryMin and RetryMax bound the wait after an apply that failed.
	RetryMin, RetryMax time.Duration
	// ReadyGrace is how long a change may wait before the agent is not ready. Changes
	// are frequent, and each needs some time.
	ReadyGrace time.Duration
}

// DefaultTiming returns the intervals that an agent runs with.
func DefaultTiming() Timing {
	return Timing{
		// Half of the delay that a person notices, ten times the duration of a small apply.
		Throttle: 10 * time.Millisecond,
		// As Felix. Only lost notifications rely on it.
		Resync:   90 * time.Second,
		RetryMin: 100 * time.Millisecond,
		RetryMax: 10 * time.Second,
		// Longer than any apply that does not hang.
		ReadyGrace: 5 * time.Second,
	}
}
