package felixlike

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// flowRestoreStage is the stage that ends the wait of a switch that was started again.
const flowRestoreStage = "flow-restore"

// flowRestore is the return of a switch on the kernel's datapath: whoever started it has
// it keep the cached flows of before (vswitchd.ErrAwaitsFlows). When policy and
// forwarding are programmed, the stage lets it go by them.
//
// The stage is behind all that the switch needs, and ahead of all that wait for
// revalidators, which the switch does not have before. If a stage of policy fails, the
// passes do not get here: the switch goes on with what was in force before, the agent is
// not ready, and status has both reasons.
type flowRestore struct {
	bridge *bridge
	log    *slog.Logger
	// since is when the switch that the agent is connected to was found waiting, or nil.
	since atomic.Pointer[time.Time]
}

// awaitPoll is the time between two looks at whether the switch still waits. It reads
// the database a few milliseconds after the change.
const awaitPoll = 5 * time.Millisecond

// found takes note of a new connection to the switch, and whether that waits.
func (f *flowRestore) found(awaits bool) {
	if !awaits {
		f.since.Store(nil)
		return
	}
	now := time.Now()
	f.since.Store(&now)
	f.log.Info("Open vSwitch was started again: cached flows decide until it is programmed")
}

func (f *flowRestore) stage() Stage {
	return Stage{Name: flowRestoreStage, After: ForwardingStage, Required: true, Timeout: crossingTimeout, Apply: writes(f.apply)}
}

func (f *flowRestore) apply(ctx context.Context) (int, error) {
	since, conn := f.since.Load(), f.bridge.forwarding.conn
	if since == nil {
		return 0, nil
	}
	if conn == nil || f.bridge.programmed != conn {
		return 0, errors.New("ovs-vswitchd goes on waiting: the forwarding flows are not programmed")
	}
	// The switch that was programmed has to be the one that runs.
	if err := conn.Barrier(ctx); err != nil {
		return 0, err
	}
	ours, err := f.bridge.client.RemoveOtherConfig(ctx, ovsdaemon.KeyAwaitFlows, ovsdaemon.MarkAwaitsAgent)
	if err != nil {
		return 0, fmt.Errorf("end the wait of Open vSwitch: %w", err)
	}
	if err := f.ended(ctx, ours); err != nil {
		return 0, err
	}
	if err := f.bridge.daemon.WaitRevalidators(ctx, pipeline.Touch(conn)); err != nil {
		return 0, err
	}
	f.since.CompareAndSwap(since, nil)
	f.log.Info("Open vSwitch goes by the programmed flows", "waited", time.Since(*since).Round(time.Millisecond))
	return 1, nil
}

// ended returns when the switch does not wait any more. Where the database is somebody
// else's, so is the key, and other bridges may have to be programmed first.
func (f *flowRestore) ended(ctx context.Context, ours bool) error {
	for {
		awaits, err := f.bridge.daemon.AwaitsFlows(ctx)
		switch {
		case err != nil || !awaits:
			return err
		case !ours:
			return fmt.Errorf("ovs-vswitchd is not ours and waits for whoever started it: %w; if nobody does, "+
				"ovs-vsctl remove Open_vSwitch . other_config %s", vswitchd.ErrAwaitsFlows, ovsdaemon.KeyAwaitFlows)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ovs-vswitchd goes on waiting: %w", ctx.Err())
		case <-time.After(awaitPoll):
		}
	}
}

// problem tells of a switch that waits, about the node.
func (f *flowRestore) problem(node string) []model.Problem {
	since := f.since.Load()
	if since == nil {
		return nil
	}
	return []model.Problem{{Object: ref("Node", "", node), Reason: fmt.Sprintf(
		"Open vSwitch was started again and waits until this agent has programmed it (since %s): connections go on by cached flows, "+
			"new ones do not open, and no change of policy or pods comes into force", since.UTC().Format(time.RFC3339))}}
}
