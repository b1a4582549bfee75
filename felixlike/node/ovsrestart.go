package node

import (
	"context"
	"log/slog"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/handover"
)

// Names of the stages of an OVS restart.
const (
	ovsRestartStage = "ovs-restart"
	settledStage    = "ovs-restart-settled"
)

// OVSRestart is the recovery after a restart of ovs-vswitchd. The userspace datapath tracks
// connections itself and loses them when it ends. If the supervisor ended it in order, it
// saved them in the kernel (package supervisor). The stages migrate them back before
// forwarding flows lead packets to the switch.
type OVSRestart struct {
	migration handover.Migration
	// judges reports whether the switch judges packets now and lost its connections.
	judges func() bool
	log    *slog.Logger

	// empty is set while the switch has none of our flows, carried once the connections are
	// migrated, forwarding once the forwarding flows are programmed.
	empty, carried, forwarding bool
	// tries counts failures of a step that the agent skips after maxTries.
	tries int
}

func NewOVSRestart(m *Migration, log *slog.Logger) *OVSRestart {
	return &OVSRestart{migration: m, judges: m.judges, log: log}
}

// Found is called for a new connection to the switch. empty is set if the switch has none of
// our flows.
func (c *OVSRestart) Found(empty bool) {
	if empty {
		c.empty, c.carried, c.forwarding, c.tries = true, false, false, 0
	}
}

// Before is the stage before the forwarding flows.
func (c *OVSRestart) Before() backend.Stage {
	return backend.Stage{Name: ovsRestartStage, Required: true, Timeout: handover.MigrationTimeout, Apply: backend.Writes(func(ctx context.Context) (int, error) {
		if !c.empty || c.carried || !c.judges() {
			return 0, nil
		}
		return 0, c.carry(ctx)
	})}
}

// After is the stage after the forwarding flows. It migrates the connections that began
// meanwhile.
func (c *OVSRestart) After() backend.Stage {
	return backend.Stage{Name: settledStage, BestEffort: true, Timeout: handover.MigrationTimeout, Apply: backend.Writes(func(ctx context.Context) (int, error) {
		if !c.empty || !c.forwarding {
			return 0, nil
		}
		if c.judges() {
			if err := c.migration.Settle(ctx); err != nil {
				return 0, c.failed(err, func() { c.empty = false })
			}
			c.carried = false
			if err := c.carry(ctx); err != nil {
				return 0, err
			}
		}
		c.empty = false
		return 0, nil
	})}
}

// Leads notes that the forwarding flows are programmed.
func (c *OVSRestart) Leads() { c.forwarding = true }

func (c *OVSRestart) carry(ctx context.Context) error {
	if err := c.migration.Carry(ctx, backend.InSwitch); err != nil {
		return c.failed(err, func() { c.carried = true })
	}
	c.carried, c.tries = true, 0
	return nil
}

// failed returns the error until it has happened maxTries times. Then it logs the error and
// gives the step up. Connections may be lost then, but policy stays complete.
func (c *OVSRestart) failed(err error, giveUp func()) error {
	if c.tries++; c.tries < handover.MaxTries {
		return err
	}
	c.log.Error("connections from before the restart of ovs-vswitchd may be lost", "error", err)
	c.tries = 0
	giveUp()
	return nil
}
