// Package elect elects the agent that does a job for the whole cluster, by a Lease in the agents' namespace.
//
// The holder renews the Lease. If it dies, another agent takes the Lease after its duration. As in client-go, only the local clock
// decides when a Lease has expired. While nobody needs the job, no agent asks for anything. All candidates together look at the
// Lease at most five times a second.
//
// It is tested by felixlike/policystatus.
package elect

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/felixlike/felixlike/felixlike/leases"
)

// Options are a job and a candidate for it.
type Options struct {
	Client dynamic.Interface
	// Node is the name of this node, by which it holds the Lease.
	Node string
	// Namespace is that of the agents, where the Lease is, and Lease its name.
	Namespace, Lease string
	// Nodes returns how many nodes there are: all are candidates.
	Nodes func() int
	// Needed reports whether somebody needs the job.
	Needed func() bool
	Log    *slog.Logger
	Timing Timing
	// Job is who is elected, and Does what it does, for the log: "writer of NAMES", "writes NAMES". Effect is that of a failure.
	Job, Does, Effect string
	// Work does the job until its context ends.
	Work func(context.Context)
}

// Timing has the times of an election.
type Timing struct {
	// Lease is how long a Lease is valid that its holder does not renew. The holder
	// renews it three times in that time, and stops working after two thirds of it.
	Lease time.Duration
	// Poll is the least time between two looks of a candidate at the Lease, PerNode the
	// same for each node: all together look once in that time.
	Poll, PerNode time.Duration
	// Needed is how often a candidate looks whether the job is needed at all. It costs nothing.
	Needed time.Duration
}

// DefaultTiming returns the times of an agent.
func DefaultTiming() Timing {
	return Timing{Lease: 30 * time.Second, Poll: 15 * time.Second, PerNode: 200 * time.Millisecond, Needed: time.Second}
}

// Run is a candidate for the Lease, and works while it holds it, until ctx ends. It returns nil: nothing of it ends an agent.
func Run(ctx context.Context, o Options) error {
	c := &candidate{
		Options: o, lease: &lease{leases: leases.New(o.Client, o.Namespace), name: o.Lease, identity: o.Node, duration: o.Timing.Lease},
		said: leases.Said{Log: o.Log, What: "elect the " + o.Job + " by the Lease " + o.Namespace + "/" + o.Lease, Effect: o.Effect},
	}
	for {
		if !c.await(ctx) {
			return nil
		}
		if c.try(ctx) {
			c.lead(ctx)
		}
		if !Sleep(ctx, c.poll()) {
			return nil
		}
	}
}

// candidate is an agent that may do the job.
type candidate struct {
	Options
	lease *lease
	said  leases.Said
}

// await waits until somebody needs the job, and then for a part of the time between two
// looks, because all candidates notice that at the same time. It reports whether ctx goes on.
func (c *candidate) await(ctx context.Context) bool {
	if c.Needed() {
		return ctx.Err() == nil
	}
	for !c.Needed() {
		if !Sleep(ctx, c.Timing.Needed) {
			return false
		}
	}
	return Sleep(ctx, time.Duration(rand.Int64N(int64(c.poll()/3)+1)))
}

// poll returns the time to the next look at the Lease.
func (c *candidate) poll() time.Duration {
	least := max(c.Timing.Poll, time.Duration(c.Nodes())*c.Timing.PerNode)
	return least + time.Duration(rand.Int64N(int64(least/4)+1))
}

// try reports whether this candidate holds the Lease.
func (c *candidate) try(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.Timing.Lease/3)
	defer cancel()
	held, err := c.lease.try(ctx)
	c.said.Note(ctx, err)
	return held
}

// lead works for as long as the Lease is held and somebody needs the job.
func (c *candidate) lead(ctx context.Context) {
	c.Log.Info("this node " + c.Does)
	working, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Work(working)
	}()
	c.hold(ctx)
	stop()
	<-ended
	if ctx.Err() == nil && c.Needed() {
		c.Log.Info("this node has lost the Lease: another one " + c.Does)
		return
	}
	// An agent that ends does not wait long for it.
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := c.lease.release(giving); err != nil {
		c.Log.Debug("the Lease is not given up: the next node waits until it has expired", "error", err)
	}
}

// hold renews the Lease until it is lost, ctx ends, or nobody needs the job.
func (c *candidate) hold(ctx context.Context) {
	for renewed := time.Now(); Sleep(ctx, c.Timing.Lease/3) && c.Needed(); {
		began := time.Now()
		held, err := c.renew(ctx)
		switch {
		case held:
			renewed = began
		case err == nil || time.Since(renewed) > c.Timing.Lease*2/3:
			return
		}
	}
}

func (c *candidate) renew(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timing.Lease/6)
	defer cancel()
	held, err := c.lease.try(ctx)
	c.said.Note(ctx, err)
	return held, err
}
