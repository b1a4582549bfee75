package policystatus

import (
	"log/slog"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/felixlike/felixlike/felixlike/leases/elect"
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
	// Variant is the setting with which no policy is in force, and pods that one selects are closed; else empty.
	Variant string
	Log     *slog.Logger
	Timing  Timing
}

// Timing has all times of the package.
type Timing struct {
	// Lease, Poll, PerNode and Needed are those of the election.
	Lease, Poll, PerNode, Needed time.Duration
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
	election := elect.DefaultTiming()
	return Timing{
		Lease: election.Lease, Poll: election.Poll, PerNode: election.PerNode, Needed: election.Needed,
		Gather: 500 * time.Millisecond, Again: 30 * time.Second, Retry: time.Second, RetryMost: time.Minute, Rate: 5, Burst: 10,
	}
}
