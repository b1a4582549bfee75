package policystatus

import (
	"log/slog"
	"time"

	"k8s.io/client-go/dynamic"
)

// Options configure Run.
type Options struct {
	Client dynamic.Interface
	// Node is the name of this node, by which it holds the Lease.
	Node string
	// Namespace is that of the agents, where the Lease is.
	Namespace string
	// Nodes returns how many nodes there are: all are candidates.
	Nodes func() int
	// Needed reports whether there is a ClusterNetworkPolicy.
	Needed func() bool
	Log    *slog.Logger
	Timing Timing
}

// Timing has all times of the package.
type Timing struct {
	// Lease is how long a Lease is valid that its holder does not renew. The holder
	// renews it three times in that time, and stops writing after two thirds of it.
	Lease time.Duration
	// Poll is the least time between two looks of a candidate at the Lease, PerNode the
	// same for each node: all together look once in that time.
	Poll, PerNode time.Duration
	// Needed is how often a candidate looks whether there are policies at all. It costs
	// nothing.
	Needed time.Duration
	// Gather is how long changes of policies are gathered before the conditions are
	// compared.
	Gather time.Duration
	// Again is the least time between two writes of one condition.
	Again time.Duration
	// Retry is the pause after the first failure of a write. Each further failure doubles
	// it, up to RetryMost.
	Retry, RetryMost time.Duration
	// Rate is how many writes a second there may be, Burst how many at once.
	Rate  float32
	Burst int
}

// DefaultTiming returns the times of an agent.
func DefaultTiming() Timing {
	return Timing{
		Lease: 30 * time.Second, Poll: 15 * time.Second, PerNode: 200 * time.Millisecond, Needed: time.Second,
		Gather: 500 * time.Millisecond, Again: 30 * time.Second, Retry: time.Second, RetryMost: time.Minute, Rate: 5, Burst: 10,
	}
}
