package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/ovsfwd/carry"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// Migration is the Migration of a node with a switch.
type Migration struct {
	at         backend.Switch
	carrier    carrier
	forwarding Forwarding
	tunnel     Steered
	// untracked is set if the switch tracks no connections: there are none to carry.
	untracked bool
	// carried is called after each Carry, also a failed one.
	carried func()
	log     *slog.Logger
	// mode is the pipeline.Mode of the desired forwarding flows. settled is set once all packets take them.
	mode    atomic.Uint32
	settled atomic.Bool
	// waited is set once Apply has waited until no packet follows forwarding flows from before the desired mode.
	waited atomic.Bool
	// unsettled is set while packets may follow forwarding flows from before the last change. Only apply uses it.
	unsettled bool
	// wait returns once no packet follows old flows of the switch. It is c.revalidated; tests replace it.
	wait func(ctx context.Context) error
	// change is c.changeFlows; tests replace it.
	change func(ctx context.Context, changes []openflow.FlowMod) error
	// leads is the mode of the programmed forwarding flows. It is nil before the first
	// apply, and after a failed one.
	leads atomic.Pointer[pipeline.Mode]
	// moving guards services: a change of the backend copies beside the stages.
	moving   sync.Mutex
	services serviceMove
}

// carrier is a carry.Carrier, or a test's.
type carrier interface {
	ToKernel(ctx context.Context) (carry.Result, error)
	ToKernelBehind(ctx context.Context) (carry.Result, error)
	ToSwitch(ctx context.Context) (carry.Result, error)
	ToSwitchAhead(ctx context.Context) (carry.Result, error)
	ForgetInKernel(ctx context.Context) (int, error)
	LeadsServices(ctx context.Context) (bool, error)
	LeaveServices(ctx context.Context) error
	EndServices(ctx context.Context, wrong func(*conntrack.Connection) bool) (int, error)
}

// Steered keeps flows that lead packets to an enforcement point.
type Steered interface {
	managers.Manager
	SetMode(mode pipeline.Mode)
}

// Forwarding keeps the flows of pods.
type Forwarding interface {
	Steered
	managers.Forwarding
}

// NewMigration returns the Migration between this node's kernel and its switch. Whoever uses it first calls OnCarried.
func NewMigration(at backend.Switch, carrier *carry.Carrier, forwarding Forwarding, tunnel Steered, log *slog.Logger) *Migration {
	c := &Migration{at: at, carrier: carrier, forwarding: forwarding, tunnel: tunnel, log: log}
	c.wait, c.change = c.revalidated, c.changeFlows
	c.services.closed.Store(at.Node.Userspace)
	return c
}

// Untracked says that the switch tracks no connections: none are carried, also after a restart of the switch.
func (c *Migration) Untracked() {
	c.untracked = true
	c.services.closed.Store(false)
}

// OnCarried sets a function that is called after each Carry, also a failed one.
func (c *Migration) OnCarried(carried func()) { c.carried = carried }

// Carry implements Migration.
func (c *Migration) Carry(ctx context.Context, to backend.Place) error {
	defer c.carried()
	if c.untracked {
		return nil
	}
	c.moving.Lock()
	defer c.moving.Unlock()
	carry, err := c.copying(ctx, to)
	if err != nil {
		return fmt.Errorf("prepare connections through Services for the %s: %w", to, err)
	}
	began := time.Now()
	r, err := carry(ctx)
	if err != nil {
		return fmt.Errorf("carry connections to the %s: %w", to, err)
	}
	c.log.Info("carried connections", "to", to, "known", r.Allowed, "written", r.Written, "ended", r.Ended, "took", time.Since(began))
	if to == backend.InSwitch && c.wanted() == pipeline.Full && c.settled.Load() {
		if _, err = c.carrier.ForgetInKernel(ctx); err == nil {
			c.services.arriving = time.Time{}
			err = c.openServices(ctx)
		}
	}
	return err
}

// copying returns how connections are copied to a place. A change of the backend copies once the forwarding flows have the wanted mode.
func (c *Migration) copying(ctx context.Context, to backend.Place) (func(context.Context) (carry.Result, error), error) {
	mode, started := c.wanted(), c.services.started.Load()
	switch {
	case to == backend.InSwitch && started && mode == pipeline.Steer:
		return c.carrier.ToSwitchAhead, nil
	case to == backend.InSwitch:
		if !started {
			c.services.arriving = time.Now().Add(pipeline.ClosedFor)
		}
		return c.carrier.ToSwitch, nil
	case started && mode == pipeline.Steer:
		return c.carrier.ToKernelBehind, nil
	case started && mode == pipeline.BeginsInHost: // the last step is next
		return c.carrier.ToKernelBehind, c.leaveServices(ctx)
	}
	return c.carrier.ToKernel, nil
}

// Steer implements Migration.
func (c *Migration) Steer(mode pipeline.Mode) {
	c.settled.Store(false)
	c.waited.Store(false)
	c.mode.Store(uint32(mode))
	c.forwarding.SetMode(mode)
	c.tunnel.SetMode(mode)
}

// wanted is the mode of the desired forwarding flows.
func (c *Migration) wanted() pipeline.Mode { return pipeline.Mode(c.mode.Load()) }

// beginsInSwitch reports whether connections begin in the switch by a mode.
func beginsInSwitch(mode pipeline.Mode) bool {
	return mode == pipeline.BeginsInSwitch || mode == pipeline.Full
}

// Apply programs the desired forwarding flows. If policy is in the switch, it also waits on the kernel's datapath until no
// cached flow follows the old ones: forwarding flows choose the tables of policy that packets pass, so a change
// of policy is in force only then. The bridge removes the cached flows of the userspace datapath itself.
func (c *Migration) Apply(ctx context.Context, program func(context.Context) (backend.Applied, error)) (backend.Applied, error) {
	mode := c.wanted()
	if err := c.beforeForwarding(ctx, mode); err != nil {
		return backend.Applied{}, err
	}
	a, err := program(ctx)
	c.unsettled = c.unsettled || a.Writes > 0
	if err == nil && c.unsettled && beginsInSwitch(mode) && !c.at.Node.Userspace {
		// A switch that awaits flows follows cached ones until the stage flow-restore, which waits too.
		err = c.wait(ctx)
		c.waited.Store(err == nil && mode == c.wanted())
		if errors.Is(err, vswitchd.ErrAwaitsFlows) {
			err = nil
		}
	}
	c.unsettled = c.unsettled && err != nil
	if err != nil {
		c.leads.Store(nil)
		return a, err
	}
	c.leads.Store(&mode)
	c.services.started.Store(true)
	return a, c.afterForwarding(ctx, mode)
}

// EndServices forgets connections that the bridge leads to Services, if they are wrong, and returns their number. It reports false while it is not
// known that all packets follow the present flows of the bridge.
func (c *Migration) EndServices(ctx context.Context, wrong func(*conntrack.Connection) bool) (int, bool, error) {
	by := c.leads.Load()
	switch {
	case c.untracked, !c.at.Node.Services:
		return 0, true, nil
	case by == nil, *by == pipeline.Steer:
		return 0, by != nil, nil // whoever leads packets to the switch again forgets them all
	}
	if !c.moving.TryLock() { // a copy could bring them back
		return 0, false, nil
	}
	defer c.moving.Unlock()
	n, err := c.carrier.EndServices(ctx, wrong)
	return n, err == nil, err
}

// judges reports whether the desired forwarding flows lead through a switch that loses its
// connections when it ends.
func (c *Migration) judges() bool {
	return beginsInSwitch(c.wanted()) && c.at.Node.Userspace && !c.untracked
}

// Settle implements Migration.
func (c *Migration) Settle(ctx context.Context) error {
	if !c.waited.Load() {
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
	c.settled.Store(true)
	return nil
}

// revalidated returns once ovs-vswitchd has looked at all cached flows again.
func (c *Migration) revalidated(ctx context.Context) error {
	conn, err := openflow.Dial(ctx, c.at.ManagementSocket())
	if err != nil {
		return err
	}
	defer conn.Close()
	return vswitchd.New(c.at.RunDir, c.at.DatapathType()).WaitRevalidators(ctx, pipeline.Touch(conn))
}

// Forwarding returns the flows of pods.
func (c *Migration) Forwarding() managers.Forwarding { return c.forwarding }
