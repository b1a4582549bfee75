package felixlike

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/ovsfwd/carry"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// Crossing is what it takes to have packets judged in another place while
// connections go on. Each place has a connection tracking of its own.
type Crossing interface {
	// Carry makes the place know the connections that the other one has let
	// through. It may be repeated: what the place knows already is left as it is.
	Carry(ctx context.Context, to backend.Place) error
	// Steer has the managers want the forwarding flows that lead packets through
	// the place. It is called between passes.
	Steer(to backend.Place)
	// Settle returns once no packet goes by forwarding flows of before.
	Settle(ctx context.Context) error
}

// crossingTimeout bounds one step of a crossing. A hundred thousand connections
// take seconds to carry.
const crossingTimeout = 30 * time.Second

// crossing is the one of an agent.
type crossing struct {
	at         backend.Switch
	carrier    *carry.Carrier
	forwarding *managers.ForwardingManager
	log        *slog.Logger
	// inSwitch tells that the forwarding flows wanted last lead through the switch,
	// settled that all packets go by them.
	inSwitch, settled atomic.Bool
}

// Carry implements Crossing.
func (c *crossing) Carry(ctx context.Context, to backend.Place) error {
	carry := c.carrier.ToKernel
	if to == backend.InSwitch {
		carry = c.carrier.ToSwitch
	}
	began := time.Now()
	r, err := carry(ctx)
	if err != nil {
		return fmt.Errorf("carry connections to the %s: %w", to, err)
	}
	c.log.Info("carried connections", "to", to, "known", r.Allowed, "written", r.Written, "ended", r.Ended, "took", time.Since(began))
	if to == backend.InSwitch && c.inSwitch.Load() && c.settled.Load() {
		_, err = c.carrier.ForgetInKernel(ctx)
	}
	return err
}

// Steer implements Crossing.
func (c *crossing) Steer(to backend.Place) {
	c.settled.Store(false)
	c.inSwitch.Store(to == backend.InSwitch)
	c.forwarding.SetMode(to.Mode())
}

// judges reports whether the forwarding flows that were wanted last lead through
// a switch that forgets connections when it ends.
func (c *crossing) judges() bool { return c.inSwitch.Load() && c.at.Node.Userspace }

// Settle implements Crossing.
func (c *crossing) Settle(ctx context.Context) error {
	conn, err := openflow.Dial(ctx, c.at.ManagementSocket())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := vswitchd.New(c.at.RunDir, c.at.DatapathType()).WaitRevalidators(ctx, pipeline.Touch(conn)); err != nil {
		return err
	}
	c.settled.Store(true)
	return nil
}
