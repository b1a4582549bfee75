package felixlike

import (
	"context"
	"log/slog"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
)

// AttachmentSource tells which pods are attached: first a snapshot of
// updates, then synced once, then changes, until ctx ends.
type AttachmentSource func(ctx context.Context, update func(model.Update), synced func()) error

// AddressSource tells which addresses this node itself has: at once, and whenever
// they have changed, until ctx ends.
type AddressSource func(ctx context.Context, update func(model.HostAddressesUpdate)) error

// Config is what a Driver is made of.
type Config struct {
	// Node is this node's name; it and Datastore are named in status.
	Node, Datastore string
	// Backend decides policy; its stage is among the Stages. NewBackend makes the
	// one that a live agent is told to change to, Crossing moves packets and
	// connections where the two judge in different places.
	Backend    backend.Backend
	NewBackend func(name string) (backend.Backend, error)
	Crossing   Crossing
	// Forwards reports whether the forwarding flows that were set last are those
	// of an attachment, too. It may be nil.
	Forwards func(*model.Attachment) bool
	// Connections lists the connections of pods that a place has let through. It
	// may be nil.
	Connections func(ctx context.Context, place backend.Place) ([]control.Connection, error)
	Source      datastore.Source
	Attachments AttachmentSource
	// HostAddresses may be nil: then nothing waits for it.
	HostAddresses AddressSource
	// Managers are those of all stages that have none of their own.
	Managers []managers.Manager
	// Stages are programmed in this order.
	Stages []backend.Stage
	// Settings are those that what is programmed depends on. It may be nil.
	Settings func() control.Settings
	// Dropped reads how many packets of pods the switch has dropped for reasons other than
	// policy, by reason. It may be nil.
	Dropped func(ctx context.Context) (map[string]uint64, error)
	// HealthAddress says where probes and metrics are served, for status. It may
	// be nil.
	HealthAddress func() string
	// Underlay tells of this node's network, for status. It may be nil.
	Underlay func() control.Underlay
	// NodeProblems returns problems of this node, for status. It may be nil.
	NodeProblems func() []model.Problem
	// Outages returns what keeps this node from being ready although everything is
	// programmed. Those with a kind are told as Events. It may be nil.
	Outages func() []datastore.Notice
	// Lost delivers the reason when the dataplane may have lost what was
	// programmed (a connection broke): everything is read again.
	Lost <-chan error
	Log  *slog.Logger
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
	// ReadyGrace is how long a change may wait before the agent counts as not
	// ready. Changes come all the time, and take their moment.
	ReadyGrace time.Duration
}

// DefaultTiming returns the intervals that an agent runs with.
func DefaultTiming() Timing {
	return Timing{
		// Half of what a person calls immediate, ten times what a small apply takes.
		Throttle: 10 * time.Millisecond,
		// Felix re-reads at 90 s; nothing here relies on it but lost notifications.
		Resync:   90 * time.Second,
		RetryMin: 100 * time.Millisecond,
		RetryMax: 10 * time.Second,
		// More than any apply takes that does not hang.
		ReadyGrace: 5 * time.Second,
	}
}
