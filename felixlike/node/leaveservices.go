package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// serviceMove moves connections to Services between the host and a bridge of the userspace datapath that leads to them. A change of the backend
// passes modes in which the host begins them all. Before the last one to the host, packets of connections by way of the host wait. At the
// start of the agent, the forwarding flows change in one step:
//
//	to the bridge    closed, and the forwarding flows after that; all connections copied; open
//	to the host      closed; no packet follows the bridge's choice any more; connections copied; the forwarding flows; open
//
// Closed is pipeline.CloseServices: the host begins all connections, so the copy misses none, and packets of those that it exchanges wait.
type serviceMove struct {
	// started is set once forwarding flows of this process are programmed, closed while the bridge may have the flows of CloseServices, of this process or
	// one before.
	started, closed atomic.Bool
	// arriving is until when the first forwarding flows take over from the host, at most.
	arriving time.Time
	// tries counts failures of the stage before the forwarding flows.
	tries int
}

// BeforeForwarding is the stage before the first forwarding flows of the agent, in which connections to Services change their way.
func (c *Migration) BeforeForwarding() backend.Stage {
	return backend.Stage{Name: backend.LeaveServicesStage, Required: true, Timeout: handover.MigrationTimeout, Apply: backend.Writes(func(ctx context.Context) (int, error) {
		if c.services.started.Load() || c.untracked || !c.at.Node.Userspace {
			return 0, nil
		}
		c.moving.Lock()
		defer c.moving.Unlock()
		err := c.moveServices(ctx)
		if err == nil {
			c.services.tries = 0
			return 0, nil
		}
		if c.services.tries++; c.services.tries < handover.MaxTries && !errors.Is(err, conntrack.ErrFull) {
			return 0, err
		}
		c.log.Error("connections through Services may be lost", "error", err)
		c.services.tries = 0
		return 0, nil
	})}
}

// moveServices has the bridge begin no connections to Services, if packets are to take another way than by the flows of a process before, and leaves those
// that it leads to the host.
func (c *Migration) moveServices(ctx context.Context) error {
	serves, judges := c.at.Node.Services, c.wanted() == pipeline.Full
	switch {
	case judges && serves:
		if c.services.arriving.IsZero() {
			return nil // the flows of a process before lead to Services as these do
		}
		return c.closeServices(ctx)
	}
	if led, err := c.carrier.LeadsServices(ctx); err != nil || !led {
		return err
	}
	if err := c.closeServices(ctx); err != nil {
		return err
	}
	if err := c.wait(ctx); err != nil {
		return err
	}
	if judges {
		return c.carrier.LeaveServices(ctx)
	}
	_, err := c.carrier.ToKernelBehind(ctx)
	return err
}

// leaveServices has packets wait whose connections the host is to lead to Services, until forwarding flows of another mode.
func (c *Migration) leaveServices(ctx context.Context) error {
	if !c.at.Node.Services {
		return nil
	}
	if err := c.closeServices(ctx); err != nil {
		return err
	}
	return c.wait(ctx)
}

// closeServices adds the flows of CloseServices, for ClosedFor from now.
func (c *Migration) closeServices(ctx context.Context) error {
	c.services.closed.Store(true)
	err := c.change(ctx, pipeline.CloseServices(c.at.Node))
	if backend.NoSwitch(err) {
		return nil // nothing is led
	}
	return err
}

// beforeForwarding renews closeServices with each try between the last copy of a change and its end: the host may have got the connections already.
func (c *Migration) beforeForwarding(ctx context.Context, mode pipeline.Mode) error {
	if mode == pipeline.Full || !c.services.closed.Load() || !c.services.started.Load() || !c.moving.TryLock() {
		return nil // or a copy is at work, which renews it if need be
	}
	defer c.moving.Unlock()
	return c.closeServices(ctx)
}

// afterForwarding undoes closeServices once one enforcement point judges all packets.
func (c *Migration) afterForwarding(ctx context.Context, mode pipeline.Mode) error {
	if mode != pipeline.Full && mode != pipeline.Steer || !c.services.closed.Load() {
		return nil
	}
	c.moving.Lock()
	defer c.moving.Unlock()
	return c.openServices(ctx)
}

// openServices undoes closeServices, if connections are not still copied.
func (c *Migration) openServices(ctx context.Context) error {
	if time.Now().Before(c.services.arriving) || !c.services.closed.Load() {
		return nil
	}
	err := c.change(ctx, pipeline.OpenServices(c.at.Node))
	c.services.closed.Store(err != nil)
	return err
}

// changeFlows makes changes of the bridge's flows in one step.
func (c *Migration) changeFlows(ctx context.Context, changes []openflow.FlowMod) error {
	conn, err := openflow.Dial(ctx, c.at.ManagementSocket())
	if err != nil {
		return err
	}
	err = conn.Bundle(ctx, func(yield func(openflow.FlowMod, error) bool) {
		for _, change := range changes {
			if !yield(change, nil) {
				return
			}
		}
	})
	return errors.Join(err, conn.Close())
}
