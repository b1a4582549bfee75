package vswitchd_test

import (
	"errors"
	"testing"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/ovstest"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// TestSwitchThatAwaitsFlows: WaitRevalidators does not wait for a switch without revalidators, and that state
// ends once.
func TestSwitchThatAwaitsFlows(t *testing.T) {
	b := ovstest.NewAwaitingBridge(t)
	c := vswitchd.New(b.Daemons.Dir(), "netdev")
	awaits := func(want bool, when string) {
		t.Helper()
		if got, err := c.AwaitsFlows(b.Context()); err != nil || got != want {
			t.Errorf("%s: awaits flows: %v, %v", when, got, err)
		}
	}
	vsctl := func(args ...string) {
		b.Run("ovs-vsctl", append([]string{"--no-wait", "--db=unix:" + b.Daemons.DBSocket()}, args...)...)
	}
	awaits(true, "started with the key")
	watch := stopwatch.Start(t)
	err := c.WaitRevalidators(b.Context(), nil)
	if took := watch.Lap(t); !errors.Is(err, vswitchd.ErrAwaitsFlows) || took.Net() > 2*time.Second {
		t.Errorf("wait for revalidators: %v after %s", err, took)
	}
	vsctl("remove", "Open_vSwitch", ".", "other_config", ovsdaemon.KeyAwaitFlows)
	ovstest.Poll(t, func() error {
		if still, err := c.AwaitsFlows(b.Context()); err != nil || still {
			return errors.Join(err, errors.New("it still awaits its flows"))
		}
		return nil
	})
	if err := c.WaitRevalidators(b.Context(), nil); err != nil {
		t.Errorf("wait for revalidators: %v", err)
	}
	vsctl("set", "Open_vSwitch", ".", "other_config:"+ovsdaemon.KeyAwaitFlows+"=true")
	time.Sleep(100 * time.Millisecond) // time for a change that must not come
	awaits(false, "the key set while it runs")
}
