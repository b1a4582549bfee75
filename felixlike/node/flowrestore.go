package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// flowRestore ends the wait of a restarted switch on the kernel's datapath, which still
// uses the old cached flows (vswitchd.ErrAwaitsFlows). When policy and forwarding are
// programmed, the stage makes the switch use them.
//
// The stage comes after the stages that program the switch. It comes before the stages that
// wait for revalidators, because a waiting switch has none. If a policy stage fails, the
// passes do not reach this stage: the switch keeps the old state, the agent is not ready,
// and status has both reasons.
type flowRestore struct {
	bridge *Bridge
	log    *slog.Logger
	// since is the time at which the agent found its switch waiting, or nil.
	since atomic.Pointer[time.Time]
}

// awaitPoll is the time between two checks that the switch still waits. The switch reads a
// change of the database after a few milliseconds.
const awaitPoll = 5 * time.Millisecond

// found records for a new connection to the switch whether the switch waits.
func (f *flowRestore) found(awaits bool) {
	if !awaits {
		f.since.Store(nil)
		return
	}
	now := time.Now()
	f.since.Store(&now)
	f.log.Info("Open vSwitch was restarted: old cached flows stay in force until the agent has programmed it")
}

func (f *flowRestore) stage() backend.Stage {
	return backend.Stage{Name: backend.FlowRestoreStage, After: backend.ForwardingStage, Required: true, Timeout: handover.MigrationTimeout, Apply: backend.Writes(f.apply)}
}

func (f *flowRestore) apply(ctx context.Context) (int, error) {
	since, conn := f.since.Load(), f.bridge.forwarding.Conn
	if since == nil {
		return 0, nil
	}
	if conn == nil || f.bridge.programmed != conn {
		return 0, errors.New("ovs-vswitchd still waits: the forwarding flows are not programmed")
	}
	// The programmed switch must be the running one.
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
	f.log.Info("Open vSwitch uses the programmed flows", "waited", time.Since(*since).Round(time.Millisecond))
	return 1, nil
}

// ended returns when the switch no longer waits. If another program set the key (not
// ours), it may have to program other bridges first, so ended returns an error.
func (f *flowRestore) ended(ctx context.Context, ours bool) error {
	for {
		awaits, err := f.bridge.daemon.AwaitsFlows(ctx)
		switch {
		case err != nil || !awaits:
			return err
		case !ours:
			return fmt.Errorf("ovs-vswitchd is not ours and waits for the program that started it: %w; if that program has ended, run "+
				"ovs-vsctl remove Open_vSwitch . other_config %s", vswitchd.ErrAwaitsFlows, ovsdaemon.KeyAwaitFlows)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ovs-vswitchd still waits: %w", ctx.Err())
		case <-time.After(awaitPoll):
		}
	}
}

// problem reports a waiting switch as a problem of the node.
func (f *flowRestore) problem(node string) []model.Problem {
	since := f.since.Load()
	if since == nil {
		return nil
	}
	return []model.Problem{{Object: model.NodeRef(node), Reason: fmt.Sprintf(
		"Open vSwitch was started again and waits until this agent has programmed it (since %s): established connections continue, "+
			"new ones do not open, and no change of policy or pods is in force yet", since.UTC().Format(time.RFC3339))}}
}
