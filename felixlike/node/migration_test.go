package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/ovsfwd/carry"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// TestChangeOfForwardingFlowsIsWaitedFor: if policy is in the switch, the forwarding stage on the kernel's datapath ends only
// when no cached flow follows the old forwarding flows, which may lead past a policy. After an error the next try
// waits again.
func TestChangeOfForwardingFlowsIsWaitedFor(t *testing.T) {
	waits := 0
	var refuses error
	c := &Migration{wait: func(context.Context) error { waits++; return refuses }}
	apply := func(writes int, failure error) error {
		_, err := c.Apply(t.Context(), func(context.Context) (backend.Applied, error) { return backend.Applied{Writes: writes}, failure })
		return err
	}
	lost := errors.New("connection lost")
	for _, step := range []struct {
		what             string
		mode             pipeline.Mode
		userspace        bool
		writes           int
		failure, refuses error
		waits            int
		fails            bool
	}{
		{what: "nothing has changed", mode: pipeline.Full},
		{what: "a flow has changed", mode: pipeline.Full, writes: 1, waits: 1},
		{what: "nothing has changed since", mode: pipeline.Full},
		{what: "the wait fails", mode: pipeline.Full, writes: 1, refuses: lost, waits: 1, fails: true},
		{what: "the next try waits again", mode: pipeline.Full, waits: 1},
		{what: "a change fails in part", mode: pipeline.Full, writes: 1, failure: lost, fails: true},
		{what: "the next try waits for it", mode: pipeline.Full, waits: 1},
		{what: "the stage flow-restore waits later", mode: pipeline.Full, writes: 1, refuses: vswitchd.ErrAwaitsFlows, waits: 1},
		{what: "policy is in the kernel", writes: 1},
		{what: "the bridge removes cached flows", mode: pipeline.Full, userspace: true, writes: 1},
	} {
		c.mode.Store(uint32(step.mode))
		c.at.Node.Userspace = step.userspace
		waits, refuses = 0, step.refuses
		if err := apply(step.writes, step.failure); waits != step.waits || (err != nil) != step.fails || (c.leads.Load() == nil) != step.fails {
			t.Errorf("%s: %d waits, want %d; error %v", step.what, waits, step.waits, err)
		}
	}
	// A change of the backend waits for the same thing once.
	waits, refuses = 0, nil
	c.at.Node.Userspace = false
	for want, writes := range []int{0, 1} {
		c.waited.Store(false) // the mode has changed
		if err := errors.Join(apply(writes, nil), c.Settle(t.Context())); err != nil || waits != want+1 || !c.settled.Load() {
			t.Errorf("%d changes: %d waits, error %v", writes, waits, err)
		}
	}
}

// TestFailedCarryIsTold: some connections may be copied before a failure.
func TestFailedCarryIsTold(t *testing.T) {
	told := 0
	c := NewMigration(backend.Switch{}, carry.New(carry.Options{Node: "node1"}), nil, nil, slog.New(slog.DiscardHandler))
	c.OnCarried(func() { told++ })
	if c.Carry(t.Context(), backend.InKernel) == nil || told != 1 {
		t.Errorf("carried in an unknown network, or told %d times", told)
	}
}
