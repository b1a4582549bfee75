package felixlike

import (
	"context"
	"log/slog"

	"github.com/felixlike/felixlike/felixlike/backend"
)

// Names of the stages of a comeback.
const (
	comebackStage = "comeback"
	settledStage  = "comeback-settled"
)

// comeback is the return of a switch that was restarted. Where it judges packets
// and tracks connections by itself, as on the userspace datapath, it has
// forgotten them; who ended it in good order has had the kernel know them
// (package supervisor). They are carried back before packets are led there.
type comeback struct {
	crossing Crossing
	// judges reports whether the switch is where packets are judged now.
	judges func() bool
	log    *slog.Logger

	// empty tells that the switch has none of our flows yet, carried that it was
	// told the connections, forwarding that packets are led.
	empty, carried, forwarding bool
	// tries counts failures of what does not hold the agent up for ever.
	tries int
}

// found takes note of a new connection to the switch, and whether that has none
// of our flows.
func (c *comeback) found(empty bool) {
	if empty {
		c.empty, c.carried, c.forwarding, c.tries = true, false, false, 0
	}
}

// before is the stage ahead of that of the forwarding flows.
func (c *comeback) before() backend.Stage {
	return backend.Stage{Name: comebackStage, Required: true, Timeout: crossingTimeout, Apply: writes(func(ctx context.Context) (int, error) {
		if !c.empty || c.carried || !c.judges() {
			return 0, nil
		}
		return 0, c.carry(ctx)
	})}
}

// after is the stage behind it: the kernel need not know the connections any
// more.
func (c *comeback) after() backend.Stage {
	return backend.Stage{Name: settledStage, Aside: true, Timeout: crossingTimeout, Apply: writes(func(ctx context.Context) (int, error) {
		if !c.empty || !c.forwarding {
			return 0, nil
		}
		if c.judges() {
			if err := c.crossing.Settle(ctx); err != nil {
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

// leads notes that the forwarding flows are programmed.
func (c *comeback) leads() { c.forwarding = true }

func (c *comeback) carry(ctx context.Context) error {
	if err := c.crossing.Carry(ctx, backend.InSwitch); err != nil {
		return c.failed(err, func() { c.carried = true })
	}
	c.carried, c.tries = true, 0
	return nil
}

// failed returns the error, until it has happened too often: then it is logged
// and given up. Connections may be lost by it, and no policy is.
func (c *comeback) failed(err error, giveUp func()) error {
	if c.tries++; c.tries < maxTries {
		return err
	}
	c.log.Error("connections of before the switch's restart may be lost", "error", err)
	c.tries = 0
	giveUp()
	return nil
}
