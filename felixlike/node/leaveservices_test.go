package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/ovsfwd/carry"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// journal is a carrier, and whatever else a Migration uses, that notes what it is asked for.
type journal struct {
	Forwarding
	did []string
	led bool
}

func (j *journal) note(what string)      { j.did = append(j.did, what) }
func (j *journal) SetMode(pipeline.Mode) {}

func (j *journal) copied(what string) (carry.Result, error) {
	j.note(what)
	return carry.Result{}, nil
}

func (j *journal) ToKernel(context.Context) (carry.Result, error) { return j.copied("to kernel") }
func (j *journal) ToKernelBehind(context.Context) (carry.Result, error) {
	return j.copied("to kernel, with Services")
}
func (j *journal) ToSwitch(context.Context) (carry.Result, error) { return j.copied("to switch") }
func (j *journal) ToSwitchAhead(context.Context) (carry.Result, error) {
	return j.copied("to switch, ahead")
}
func (j *journal) LeadsServices(context.Context) (bool, error) { return j.led, nil }

func (j *journal) ForgetInKernel(context.Context) (int, error) {
	j.note("forget")
	return 0, nil
}

func (j *journal) LeaveServices(context.Context) error {
	j.note("leave Services")
	return nil
}

func (j *journal) EndServices(context.Context, func(*conntrack.Connection) bool) (int, error) {
	j.note("end Services")
	return 0, nil
}

// wantDone fails the test if other things were done since the last call.
func (j *journal) wantDone(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := strings.Join(j.did, "; "); got != strings.Join(want, "; ") {
		t.Errorf("%s: %s\nwant %s", when, got, strings.Join(want, "; "))
	}
	j.did = nil
}

// newMove returns a Migration of a node whose bridge leads to Services, with what it does.
func newMove() (*Migration, *journal) {
	j := &journal{}
	c := NewMigration(backend.Switch{Node: pipeline.Node{Services: true, Userspace: true}}, nil, j, j, slog.New(slog.DiscardHandler))
	c.OnCarried(func() {})
	c.carrier = j
	c.wait = func(context.Context) error { j.note("wait"); return nil }
	c.change = func(_ context.Context, changes []openflow.FlowMod) error {
		if changes[0].Command == openflow.Add {
			j.note("close")
		} else {
			j.note("open")
		}
		return nil
	}
	return c, j
}

// TestServicesMoveInAChange: before the last step to the host, connections wait that come by way of it, until the change has ended there or back in the switch,
// however often a step fails.
func TestServicesMoveInAChange(t *testing.T) {
	c, j := newMove()
	lost := errors.New("connection lost")
	apply := func(failure error) {
		t.Helper()
		_, err := c.Apply(t.Context(), func(context.Context) (backend.Applied, error) {
			j.note(c.wanted().String())
			return backend.Applied{}, failure
		})
		if !errors.Is(err, failure) {
			t.Fatal(err)
		}
	}
	carried := func(to backend.Place) {
		t.Helper()
		if err := c.Carry(t.Context(), to); err != nil {
			t.Fatal(err)
		}
	}
	steer := func(m pipeline.Mode) {
		t.Helper()
		c.Steer(m)
		apply(nil)
		if err := c.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	toLastStep := func() {
		t.Helper()
		carried(backend.InKernel)
		steer(pipeline.BeginsInSwitch)
		steer(pipeline.BeginsInHost)
		j.wantDone(t, "on the way to the host", "to kernel", "begins in the switch", "wait", "begins in the host", "wait")
		apply(lost)
		carried(backend.InKernel)
		j.wantDone(t, "last copy before, after a failed cycle", "begins in the host", "close", "wait", "to kernel, with Services")
	}
	steer(pipeline.Full)
	j.wantDone(t, "start", "full", "open", "wait")
	toLastStep()
	apply(nil)
	c.Steer(pipeline.Steer)
	apply(lost)
	apply(nil)
	carried(backend.InKernel)
	j.wantDone(t, "last step", "close", "begins in the host", "close", "steer", "close", "steer", "open", "to kernel, with Services")
	carried(backend.InSwitch)
	steer(pipeline.BeginsInHost)
	steer(pipeline.BeginsInSwitch)
	carried(backend.InSwitch)
	steer(pipeline.Full)
	carried(backend.InSwitch)
	j.wantDone(t, "back", "to switch, ahead", "begins in the host", "wait", "begins in the switch", "wait", "to switch", "full", "wait", "to switch", "forget")
	toLastStep()
	c.Steer(pipeline.Steer)
	apply(lost)
	for _, m := range []pipeline.Mode{pipeline.BeginsInHost, pipeline.BeginsInSwitch, pipeline.Full} {
		steer(m)
	}
	j.wantDone(t, "given up", "close", "steer", "close", "begins in the host", "wait", "close", "begins in the switch", "wait", "full", "open", "wait")
}

// TestServicesMoveAtTheStart: an agent that finds another backend's flows changes them in one step, in which the bridge begins no connections to Services.
func TestServicesMoveAtTheStart(t *testing.T) {
	for _, test := range []struct {
		what     string
		mode     pipeline.Mode
		services bool
		found    bool
		led      bool
		want     []string
	}{
		{"the same", pipeline.Full, true, false, true, []string{"full", "open"}},
		{"from the host", pipeline.Full, true, true, false, []string{"to switch", "close", "full", "to switch", "forget", "open"}},
		{"to the host", pipeline.Steer, true, true, true, []string{"to kernel", "close", "wait", "to kernel, with Services", "steer", "open", "to kernel, with Services"}},
		{"to the host, nothing led", pipeline.Steer, true, true, false, []string{"to kernel", "steer", "open", "to kernel, with Services"}},
		{"another program serves Services", pipeline.Full, false, false, true, []string{"close", "wait", "leave Services", "full", "open"}},
	} {
		c, j := newMove()
		c.at.Node.Services, j.led = test.services, test.led
		c.Steer(test.mode)
		to := backend.InKernel
		if test.mode == pipeline.Full {
			to = backend.InSwitch
		}
		carried := func() error {
			if !test.found {
				return nil
			}
			return c.Carry(t.Context(), to)
		}
		if err := carried(); err != nil {
			t.Error(err)
		}
		for range 2 { // it is a stage of each cycle
			if _, err := c.BeforeForwarding().Apply(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := c.Apply(t.Context(), func(context.Context) (backend.Applied, error) {
				if !c.services.started.Load() {
					j.note(c.wanted().String())
				}
				return backend.Applied{}, nil
			}); err != nil {
				t.Error(err)
			}
		}
		c.settled.Store(true)
		if err := carried(); err != nil {
			t.Error(err)
		}
		j.wantDone(t, test.what, test.want...)
	}
}
