package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// awaiting is an Open vSwitch that awaits its flows.
type awaiting struct {
	*ovsdaemon.Daemons
	t      *testing.T
	netns  int
	db     *ovsdb.Client
	config ovsdb.Config
}

// awaitingSwitch starts ovs-vswitchd with a bridge of the kernel's datapath, and makes
// that one of the userspace datapath then, which needs no kernel module.
func awaitingSwitch(ctx context.Context, t *testing.T) awaiting {
	t.Helper()
	if err := ovsdaemon.Available(); err != nil {
		t.Skip(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ns, err := namespace.Create(fmt.Sprintf("flx-await-%d", os.Getpid()))
	must(err)
	t.Cleanup(func() {
		ns.Close()
		if err := namespace.Delete(ns.Name()); err != nil {
			t.Error(err)
		}
	})
	dir, err := ovsdaemon.TempDir()
	must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	netns, err := os.Open(ns.Path())
	must(err)
	t.Cleanup(func() { _ = netns.Close() })
	a := awaiting{t: t, netns: int(netns.Fd())}
	a.Daemons, err = ovsdaemon.Start(ctx, ovsdaemon.Options{Dir: dir, NetNS: ns.Path(), Kernel: true})
	must(err)
	t.Cleanup(func() {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
	})
	a.config = ovsdb.Config{
		Socket: a.DBSocket(), Bridge: "br-int", DatapathType: ovsdb.DatapathNetdev, TunnelType: "geneve",
		Gateway: model.GatewayPort, Tunnel: model.TunnelPort, GatewayMAC: ovsdb.GatewayMAC("node1"),
		LocalIP: netip.MustParseAddr("192.168.77.100"), MTU: 1450, NodeName: "node1",
	}
	a.vsctl("add-br", a.config.Bridge)
	must(a.KillVSwitchd())
	must(a.StartVSwitchd(ctx))
	a.db, err = ovsdb.Open(ctx, a.config)
	must(err)
	t.Cleanup(a.db.Close)
	must(a.db.EnsureBridge(ctx))
	return a
}

func (a awaiting) vsctl(args ...string) {
	a.t.Helper()
	out, err := exec.Command("ovs-vsctl", append([]string{"--no-wait", "--db=unix:" + a.DBSocket()}, args...)...).CombinedOutput()
	if err != nil {
		a.t.Fatalf("ovs-vsctl %v: %v\n%s", args, err, out)
	}
}

// TestSwitchThatAwaitsFlows follows a switch that goes by cached flows of before its
// start: policy that it gets is pending, status names it, and the wait ends behind the
// forwarding flows, in a database that is ours.
func TestSwitchThatAwaitsFlows(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := awaitingSwitch(ctx, t)
	flows := openflow.NewFlowTable(pipeline.Owner, pipeline.Version)
	b := NewBridge(BridgeOptions{
		DB: at.config, RunDir: at.Dir(), Flows: flows, Connected: func(bool) {}, Log: slog.New(slog.DiscardHandler),
	})
	b.client, b.ensured = at.db, true
	t.Cleanup(b.forwarding.Close)
	policy, err := backend.New(ctx, backend.Config{Name: config.OpenFlow, Node: "node1", NetNS: at.netns, Switch: backend.Switch{
		RunDir: at.Dir(), Bridge: at.config.Bridge, Node: pipeline.Node{GatewayPort: ovsdb.GatewayOFPort, Userspace: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = policy.Close() })
	for _, m := range policy.Stage().Managers {
		m.CompleteDeferredWork()
	}
	if err := b.connect(ctx); err != nil {
		t.Fatal(err)
	}
	problem := func() string {
		for _, p := range b.restore.problem("node1") {
			return p.Object.String() + ": " + p.Reason
		}
		return ""
	}
	if got := problem(); !strings.Contains(got, "node1: Open vSwitch was started again and waits until this agent has programmed it (since ") {
		t.Errorf("status has %q", got)
	}
	watch := stopwatch.Start(t)
	a, err := policy.Stage().Apply(ctx)
	if took := watch.Lap(t); !a.Pending || err != nil || took.Net() > 2*time.Second {
		t.Errorf("policy: pending %v, %v, after %s", a.Pending, err, took)
	}
	fails := func(when, want string) {
		t.Helper()
		if _, err := b.restore.apply(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", when, err)
		}
		if awaits, err := b.daemon.AwaitsFlows(ctx); err != nil || !awaits || problem() == "" {
			t.Errorf("%s: awaits %v, %v, status has %q", when, awaits, err, problem())
		}
	}
	fails("before the forwarding flows", "the forwarding flows are not programmed")
	if _, err := b.ApplyFlows(ctx); err != nil {
		t.Fatal(err)
	}
	at.vsctl("remove", "Open_vSwitch", ".", "external_ids", ovsdaemon.MarkAwaitsAgent)
	fails("a database that is not ours", "ovs-vswitchd is not ours")
	at.vsctl("set", "Open_vSwitch", ".", "external_ids:"+ovsdaemon.MarkAwaitsAgent+"=true")
	if n, err := b.restore.apply(ctx); n == 0 || err != nil {
		t.Errorf("the wait ends: %d, %v", n, err)
	}
	if awaits, err := b.daemon.AwaitsFlows(ctx); err != nil || awaits || problem() != "" {
		t.Errorf("afterwards: awaits %v, %v, status has %q", awaits, err, problem())
	}
	if a, err := policy.Stage().Apply(ctx); a.Pending || err != nil {
		t.Errorf("policy afterwards: pending %v, %v", a.Pending, err)
	}
	if n, err := b.restore.apply(ctx); n != 0 || err != nil {
		t.Errorf("once more: %d, %v", n, err)
	}
	if err := b.daemon.WaitRevalidators(ctx, nil); errors.Is(err, vswitchd.ErrAwaitsFlows) {
		t.Error(err)
	}
}
