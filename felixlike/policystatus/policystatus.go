package policystatus

import (
	"context"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/leases"
)

// Rights returns the rights that Run needs for policies, in addition to the right to list and
// watch them. The ClusterRole in deploy/ grants them.
func Rights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha2.GroupName}, Resources: []string{"clusternetworkpolicies/status"}, Verbs: []string{"patch"}},
	}
}

// effect is that of a failure.
const effect = "policy is in force without it"

// LeaseRights returns the rights that Run needs in the agents' namespace. The Role in deploy/
// grants them.
func LeaseRights() []rbacv1.PolicyRule {
	leases := []string{"leases"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{coordinationv1.GroupName}, Resources: leases, ResourceNames: []string{LeaseName}, Verbs: []string{"get", "update"}},
		// A name cannot restrict create.
		{APIGroups: []string{coordinationv1.GroupName}, Resources: leases, Verbs: []string{"create"}},
	}
}

// Run is a candidate for the Lease, and writes the conditions while it holds it, until
// ctx ends. It returns nil: nothing of it ends an agent.
func Run(ctx context.Context, o Options) error {
	c := &candidate{
		Options: o, lease: &lease{leases: leases.New(o.Client, o.Namespace), identity: o.Node, duration: o.Timing.Lease},
		said: leases.Said{Log: o.Log, What: "elect the writer of policy status by the Lease " + o.Namespace + "/" + LeaseName, Effect: effect},
	}
	for {
		if !c.await(ctx) {
			return nil
		}
		if c.try(ctx) {
			c.lead(ctx)
		}
		if !sleep(ctx, c.poll()) {
			return nil
		}
	}
}

// candidate is an agent that may write.
type candidate struct {
	Options
	lease *lease
	said  leases.Said
}

// await waits until there are policies, and then for a part of the time between two
// looks, because all candidates notice that at the same time. It reports whether ctx goes on.
func (c *candidate) await(ctx context.Context) bool {
	if c.Needed() {
		return ctx.Err() == nil
	}
	for !c.Needed() {
		if !sleep(ctx, c.Timing.Needed) {
			return false
		}
	}
	return sleep(ctx, time.Duration(rand.Int64N(int64(c.poll()/3)+1)))
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

// lead writes the conditions for as long as the Lease is held and there are policies.
func (c *candidate) lead(ctx context.Context) {
	c.Log.Info("this node writes the status of ClusterNetworkPolicies")
	writing, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		newWriter(c.Options).run(writing)
	}()
	c.hold(ctx)
	stop()
	<-ended
	if ctx.Err() == nil && c.Needed() {
		c.Log.Info("this node does not write the status of ClusterNetworkPolicies any more: it has lost the Lease")
		return
	}
	// An agent that ends does not wait long for it.
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := c.lease.release(giving); err != nil {
		c.Log.Debug("the Lease is not given up: the next node waits until it has expired", "error", err)
	}
}

// hold renews the Lease until it is lost, ctx ends, or there are no policies.
func (c *candidate) hold(ctx context.Context) {
	for renewed := time.Now(); sleep(ctx, c.Timing.Lease/3) && c.Needed(); {
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
