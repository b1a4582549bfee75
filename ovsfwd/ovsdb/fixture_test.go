package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
)

type fixture struct {
	t   *testing.T
	ovs *ovsdaemon.Daemons
	ns  string
	cfg Config
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if err := ovsdaemon.Available(); err != nil {
		t.Skip(err)
	}
	f := &fixture{t: t, ns: fmt.Sprintf("flx-ovsdb-%d", os.Getpid())}
	f.run("ip", "netns", "add", f.ns)
	t.Cleanup(func() { f.run("ip", "netns", "del", f.ns) })
	dir, err := ovsdaemon.TempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if f.ovs, err = ovsdaemon.Start(f.context(), ovsdaemon.Options{Dir: dir, NetNS: f.ns}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.ovs.Stop(); err != nil {
			t.Error(err)
		}
	})
	f.cfg = Config{
		Socket: f.ovs.DBSocket(), Bridge: "br-int", DatapathType: DatapathNetdev, TunnelType: "geneve",
		Gateway: "flx-gw0", Tunnel: "flx-tun0", GatewayMAC: GatewayMAC("n1"), LocalIP: netip.MustParseAddr("192.168.77.100"),
		MTU: 1450, NodeName: "n1", Zones: []uint16{65520},
	}
	return f
}

func (f *fixture) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	f.t.Cleanup(cancel)
	return ctx
}

func (f *fixture) open() *Client {
	f.t.Helper()
	c, err := Open(f.context(), f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	return c
}

func (f *fixture) ensure(c *Client) {
	f.t.Helper()
	if err := c.EnsureBridge(f.context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) run(name string, args ...string) string {
	f.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (f *fixture) vsctl(args ...string) string {
	f.t.Helper()
	return strings.TrimSpace(f.run("ovs-vsctl", append([]string{"--timeout=10", "--db=unix:" + f.ovs.DBSocket()}, args...)...))
}

// veth makes a veth pair with its host side in the daemons' namespace.
func (f *fixture) veth(name string) {
	f.t.Helper()
	f.run("ip", "-n", f.ns, "link", "add", name, "type", "veth", "peer", "name", name+"p")
	f.run("ip", "-n", f.ns, "link", "set", name, "up")
}

func attachment(pod, iface string) model.Attachment {
	return model.Attachment{
		Pod: model.PodID{Namespace: "default", Name: pod}, Interface: iface,
		MAC:       net.HardwareAddr{2, 0, 0, 0, 0, 1},
		Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.2"), netip.MustParseAddr("fd00:10:10::2")},
	}
}

// watch runs WatchAttachments and delivers its updates; "in sync" and errors
// come as strings.
func (f *fixture) watch(c *Client) (<-chan any, context.CancelFunc) {
	ctx, cancel := context.WithCancel(f.context())
	events := make(chan any, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := c.WatchAttachments(ctx, func(u model.Update) { events <- u }, func() { events <- "in sync" }, func(err error) { events <- err.Error() })
		if !errors.Is(err, context.Canceled) {
			f.t.Errorf("watch ended: %v", err)
		}
	}()
	stop := func() { cancel(); <-done }
	f.t.Cleanup(stop)
	return events, stop
}

func (f *fixture) next(events <-chan any) any {
	f.t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(10 * time.Second):
		f.t.Fatal("no event")
		return nil
	}
}
