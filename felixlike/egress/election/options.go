package election

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/felixlike/felixlike/felixlike/leases"
)

// Leases are the Leases of the agents' namespace (leases.Client).
type Leases interface {
	Get(ctx context.Context, name string) (*leases.Lease, error)
	List(ctx context.Context, selector string) ([]*leases.Lease, error)
	Put(ctx context.Context, l *leases.Lease) error
	Delete(ctx context.Context, l *leases.Lease) error
}

// Kernel has addresses for a time (hostnet.Addresses).
type Kernel interface {
	// Hold lets the node have these addresses, and no others, until a time.
	Hold(held []netip.Addr, until time.Time) error
	// Release takes an address from the node.
	Release(netip.Addr) error
	// Probe returns an error if another host has an address, or if it is not known.
	Probe(netip.Addr) error
}

// Options configure an Election.
type Options struct {
	Leases Leases
	Kernel Kernel
	// Node is the name of this node.
	Node   string
	Log    *slog.Logger
	Timing Timing
}

// Timing has all times of the package.
type Timing struct {
	// Renew is the time between two renewals. Valid is how long a node has its addresses after one. Expiry is how long other
	// nodes wait; its difference to Valid is for the kernel, which ends the time up to two seconds late, and for clocks.
	Renew, Valid, Expiry time.Duration
	// Request bounds a request to the API server.
	Request time.Duration
	// Stagger is the time that a candidate waits for the one before it in the order of an address.
	Stagger time.Duration
	// Poll is the least time between two looks at the Leases of other nodes, PerCandidate the same for each candidate.
	Poll, PerCandidate time.Duration
	// Retry is the pause after a failure.
	Retry time.Duration
	// Orphan is the least time that a Lease without an Egress stays if its node does not delete it. A node that knows of an Egress later than
	// others must not take its address away in that time.
	Orphan time.Duration
}

// DefaultTiming returns the times of an agent.
func DefaultTiming() Timing {
	return Timing{
		Renew: 2 * time.Second, Valid: 7 * time.Second, Expiry: 10 * time.Second, Request: 2 * time.Second,
		Stagger: 500 * time.Millisecond, Poll: time.Second, PerCandidate: 20 * time.Millisecond, Retry: time.Second, Orphan: time.Minute,
	}
}

// Rights returns the rights that an election needs in the agents' namespace. The Role in deploy/ grants them.
func Rights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"},
		Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
	}}
}
