package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// groupedFlows keeps the desired flows of each group.
type groupedFlows map[string][]openflow.Flow

func (g groupedFlows) SetFlows(key string, render func() []openflow.Flow) { g[key] = render() }
func (g groupedFlows) RemoveFlows(key string)                             { delete(g, key) }

// offloads reports whether the flows of a group look up the host's connections.
func (g groupedFlows) offloads(key string) bool {
	for _, f := range g[key] {
		if f.Table == pipeline.TableHostConntrack || strings.Contains(f.String(), "goto_table:33") {
			return true
		}
	}
	return false
}

// offloadMigration makes a migration with both managers of forwarding flows, for a node with a pod and a peer.
func offloadMigration(flows managers.Flows) (*Migration, []managers.Manager) {
	node := pipeline.Node{GatewayPort: 2, TunnelPort: 1, GatewayMAC: make([]byte, 6), Offload: true}
	c := &Migration{
		forwarding: managers.NewForwardingManager("n1", node, flows),
		tunnel:     managers.NewTunnelManager("n1", model.Encap, node, flows),
	}
	both := []managers.Manager{c.forwarding, c.tunnel}
	for _, u := range []model.Update{
		model.NodeUpdate{Node: &model.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}}},
		model.NodeUpdate{Node: &model.Node{
			Name: "n2", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24")}, Addresses: []netip.Addr{netip.MustParseAddr("192.168.77.101")},
		}},
		model.AttachmentUpdate{Attachment: &model.Attachment{
			Pod: model.PodID{Namespace: "x", Name: "a"}, OFPort: 3, MAC: []byte{2, 0, 0, 0, 0, 1}, Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.2")},
		}},
	} {
		for _, m := range both {
			m.OnUpdate(u)
		}
	}
	return c, both
}

// TestSteerChangesAllGroups: Steer changes the pipeline of the node, its pods and its peers. A peer's
// flow that is left would send packets to a table that the full pipeline does not have.
func TestSteerChangesAllGroups(t *testing.T) {
	flows := groupedFlows{}
	c, both := offloadMigration(flows)
	for _, place := range []backend.Place{backend.InKernel, backend.InSwitch, backend.InKernel} {
		c.Steer(place.Mode())
		for _, m := range both {
			m.CompleteDeferredWork()
		}
		for _, group := range []string{"base", "pod x/a", "peer n2"} {
			if got := flows.offloads(group); got != (place == backend.InKernel) || len(flows[group]) == 0 {
				t.Errorf("%s: %s has %d flows, of offload: %v", place, group, len(flows[group]), got)
			}
		}
	}
}

// TestStatusOfOffload: the programmed flows decide, not the backend or the desired flows.
func TestStatusOfOffload(t *testing.T) {
	c, _ := offloadMigration(groupedFlows{})
	o := NewOffload(config.OffloadAuto, ovsdb.DatapathSystem, nil, slog.New(slog.DiscardHandler))
	apply := func(err error) {
		_, _ = c.Apply(t.Context(), func(context.Context) (backend.Applied, error) { return backend.Applied{}, err })
	}
	is := func(when string, want control.Offload) {
		t.Helper()
		want.Setting = config.OffloadAuto
		if got := o.Status(c); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	active := control.Offload{Active: true}
	judged := control.Offload{Why: "backend openflow judges packets in the bridge"}
	failed := control.Offload{Why: "the forwarding flows are not programmed"}
	c.Steer(pipeline.Steer)
	is("before the first apply", failed)
	apply(nil)
	is("programmed", active)
	c.Steer(pipeline.Full)
	is("before the full pipeline is programmed", active)
	apply(nil)
	is("full pipeline", judged)
	c.Steer(pipeline.Steer)
	is("before the steering pipeline is programmed", judged)
	apply(errors.New("the switch refuses the flows"))
	is("refused", failed)
	apply(nil)
	is("programmed again", active)
}

// TestOffloadOfSettings: only auto looks at rules of other programs.
func TestOffloadOfSettings(t *testing.T) {
	for _, c := range []struct {
		setting, datapath string
		found             []string
		err               error
		why               string
		active            bool
	}{
		{config.OffloadAuto, ovsdb.DatapathSystem, nil, nil, "", true},
		{config.OffloadAuto, ovsdb.DatapathSystem, []string{"a", "b", "c", "d", "e"}, nil, "rules of other programs have to see all packets of pods: a; b; c; 2 more", false},
		{config.OffloadAuto, ovsdb.DatapathSystem, nil, errors.New("no"), "whether rules of other programs have to see all packets of pods is not known: no", false},
		{config.OffloadAuto, ovsdb.DatapathNetdev, []string{"a"}, nil, "datapath netdev does not share connection tracking with the host", false},
		{config.OffloadOn, ovsdb.DatapathSystem, []string{"a"}, nil, "", true},
		{config.OffloadOn, ovsdb.DatapathNetdev, nil, nil, "datapath netdev does not share connection tracking with the host", false},
		{config.OffloadOff, ovsdb.DatapathSystem, []string{"a"}, nil, "", false},
		{config.OffloadOff, ovsdb.DatapathNetdev, nil, nil, "", false},
	} {
		o := NewOffload(c.setting, c.datapath, func(context.Context, bool) ([]string, error) { return c.found, c.err }, slog.New(slog.DiscardHandler))
		o.Begin(t.Context())
		if o.Active() != c.active || o.reason() != c.why {
			t.Errorf("%s, %s: active %v, %q", c.setting, c.datapath, o.Active(), o.reason())
		}
	}
}

// TestOffloadFollowsOtherPrograms: rules that appear end offload at once, and it comes back when none has been seen
// for a while. One look that fails changes nothing.
func TestOffloadFollowsOtherPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var found []string
		var err error
		wholes := 0
		o := NewOffload(config.OffloadAuto, ovsdb.DatapathSystem, func(_ context.Context, again bool) ([]string, error) {
			if again {
				wholes++
			}
			return found, err
		}, slog.New(slog.DiscardHandler))
		o.Begin(ctx)
		var updates []bool
		done := make(chan error)
		go func() { done <- o.Run(ctx, func(u model.OffloadUpdate) { updates = append(updates, u.Active) }) }()
		after := func(d time.Duration, what string, want ...bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if !slices.Equal(updates, want) {
				t.Errorf("%s: %v, want %v", what, updates, want)
			}
		}
		after(time.Minute, "nothing")
		found = []string{"x"}
		after(o.every, "a rule", false)
		found = nil
		after(o.every, "it is gone", false)
		found = []string{"y"}
		after(o.every, "another one", false)
		if !strings.HasSuffix(o.reason(), ": y") {
			t.Errorf("reason %q", o.reason())
		}
		found = nil
		after(o.quiet-o.every, "not yet quiet", false)
		after(2*o.every, "quiet", false, true)
		err = errors.New("no")
		after((maxFailures-1)*o.every, "failed", false, true)
		after(o.every, "failed again and again", false, true, false)
		err = nil
		after(o.every, "works again", false, true, false, true)
		wholes = 0
		after(10*o.whole, "a long time", false, true, false, true)
		if wholes < 9 || wholes > 10 {
			t.Errorf("%d reads of all rules", wholes)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
