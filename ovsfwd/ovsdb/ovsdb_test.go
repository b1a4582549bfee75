package ovsdb

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

func TestEnsureBridge(t *testing.T) {
	f := newFixture(t)
	c := f.open()
	f.ensure(c)
	for _, test := range []struct{ args, want string }{
		{"get bridge br-int datapath_type", "netdev"},
		{"get bridge br-int fail_mode", "secure"},
		{"get bridge br-int protocols", "[OpenFlow13, OpenFlow15]"},
		{"get bridge br-int external_ids:felixlike-node", "n1"},
		{"get interface flx-gw0 ofport", "2"},
		{"get interface flx-gw0 mac_in_use", `"` + f.cfg.GatewayMAC.String() + `"`},
		{"get interface flx-gw0 mtu", "1450"},
		{"get interface flx-tun0 ofport", "1"},
		{"get interface flx-tun0 type", "geneve"},
		{"get interface flx-tun0 options", `{key=flow, local_ip="192.168.77.100", remote_ip=flow}`},
		{"list-zone-tp netdev", "Zone:65520, Timeout Policies: udp_multiple=120"},
	} {
		eventually.True(t, test.args+": "+test.want, func() bool { // ovs-vswitchd writes what is in use a moment later
			return f.vsctl(strings.Fields(test.args)...) == test.want
		})
	}
	writes := c.Writes()
	f.ensure(c)
	if c.Writes() != writes || writes == 0 {
		t.Errorf("second call sent %d operations (first %d)", c.Writes()-writes, writes)
	}
	again := f.open()
	f.ensure(again)
	if again.Writes() != 0 {
		t.Errorf("new client sent %d operations", again.Writes())
	}
}

func TestEnsureBridgeRepairsOnlyWhatDiffers(t *testing.T) {
	f := newFixture(t)
	f.ensure(f.open())
	f.vsctl("set", "bridge", "br-int", "fail_mode=standalone", "external_ids:other=kept")
	f.vsctl("set", "interface", "flx-gw0", "mtu_request=1400")
	c := f.open()
	f.ensure(c)
	if c.Writes() != 2 {
		t.Errorf("sent %d operations, want 2", c.Writes())
	}
	if got := f.vsctl("get", "bridge", "br-int", "fail_mode"); got != "secure" {
		t.Errorf("fail_mode %s", got)
	}
	if got := f.vsctl("get", "bridge", "br-int", "external_ids:other"); got != "kept" {
		t.Errorf("foreign external_ids: %s", got)
	}
}

// TestTimeoutsOfOthersAreKept: an administrator's for our zone, and other zones.
func TestTimeoutsOfOthersAreKept(t *testing.T) {
	f := newFixture(t)
	f.vsctl("--", "--id=@dp", "create", "Datapath", "datapath_version=0", "--", "set", "Open_vSwitch", ".", "datapaths:netdev=@dp")
	f.vsctl("add-zone-tp", "netdev", "zone=7", "udp_single=5")
	f.ensure(f.open())
	if got, want := f.vsctl("list-zone-tp", "netdev"), "Zone:7, Timeout Policies: udp_single=5\nZone:65520, Timeout Policies: udp_multiple=120"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.vsctl("del-zone-tp", "netdev", "zone=65520")
	f.vsctl("add-zone-tp", "netdev", "zone=65520", "udp_multiple=300")
	c := f.open()
	f.ensure(c)
	if got := f.vsctl("list-zone-tp", "netdev"); !strings.Contains(got, "udp_multiple=300") || c.Writes() != 0 {
		t.Errorf("%s, %d operations", got, c.Writes())
	}
}

func TestGatewayKeepsItsMACOverVSwitchdRestart(t *testing.T) {
	f := newFixture(t)
	c := f.open()
	f.ensure(c)
	writes := c.Writes()
	if err := f.ovs.KillVSwitchd(); err != nil {
		t.Fatal(err)
	}
	if err := f.ovs.StartVSwitchd(f.context()); err != nil {
		t.Fatal(err)
	}
	f.ensure(c)
	var out []byte
	eventually.True(t, "the gateway has its MAC address", func() bool {
		var err error
		out, err = exec.Command("ip", "-n", f.ns, "link", "show", "flx-gw0").CombinedOutput()
		return err == nil && strings.Contains(string(out), f.cfg.GatewayMAC.String())
	}, func() string { return string(out) })
	if c.Writes() != writes {
		t.Errorf("restart of vswitchd caused %d operations", c.Writes()-writes)
	}
}

func TestPhysicalBridge(t *testing.T) {
	f := newFixture(t)
	f.veth("up0")
	f.cfg.Uplink, f.cfg.UplinkMAC = "up0", net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	c := f.open()
	f.ensure(c)
	if got := f.vsctl("list-ports", PhysicalBridge); got != "up0" {
		t.Errorf("ports of %s: %s", PhysicalBridge, got)
	}
	out := f.run("ip", "-n", f.ns, "link", "show", PhysicalBridge)
	if !strings.Contains(out, f.cfg.UplinkMAC.String()) {
		t.Errorf("local port lacks the uplink's MAC:\n%s", out)
	}
	again := f.open()
	f.ensure(again)
	if again.Writes() != 0 {
		t.Errorf("second call sent %d operations", again.Writes())
	}
}

func TestRemoveBridges(t *testing.T) {
	f := newFixture(t)
	f.veth("up0")
	f.cfg.Uplink, f.cfg.UplinkMAC = "up0", net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	c := f.open()
	f.ensure(c)
	f.vsctl("add-br", "br-theirs", "--", "set", "bridge", "br-theirs", "datapath_type=netdev")
	for _, want := range [][]string{{"br-int", PhysicalBridge}, nil} {
		got, err := c.RemoveBridges(f.context())
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("removed %v, %v, want %v", got, err, want)
		}
	}
	if got := f.vsctl("list-br"); got != "br-theirs" {
		t.Errorf("bridges that are left: %s", got)
	}
	f.run("ip", "-n", f.ns, "link", "show", "up0")
}

func TestErrorsNameBridgeAndPort(t *testing.T) {
	f := newFixture(t)
	c := f.open()
	_, err := c.AttachPort(f.context(), attachment("web", "none0"))
	if err == nil || !strings.Contains(err.Error(), "br-int") {
		t.Errorf("no bridge: %v", err)
	}
	f.ensure(c)
	_, err = c.AttachPort(f.context(), attachment("web", "none0"))
	if err == nil || !strings.Contains(err.Error(), "br-int") || !strings.Contains(err.Error(), "none0") || !strings.Contains(err.Error(), "default/web") {
		t.Errorf("no interface: %v", err)
	}
}

func TestAttachAndDetach(t *testing.T) {
	f := newFixture(t)
	f.ensure(f.open())
	f.veth("v1")
	cni := f.open()
	port, err := cni.AttachPort(f.context(), attachment("web", "v1"))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.vsctl("get", "interface", "v1", "ofport"); got != fmt.Sprint(port) {
		t.Errorf("ofport %d, database says %s", port, got)
	}
	writes := cni.Writes()
	if again, err := cni.AttachPort(f.context(), attachment("web", "v1")); err != nil || again != port || cni.Writes() != writes {
		t.Errorf("second attach: port %d, error %v, %d operations", again, err, cni.Writes()-writes)
	}
	// Another pod takes the name over; the first pod's late detach must not hurt it.
	if _, err := cni.AttachPort(f.context(), attachment("db", "v1")); err != nil {
		t.Fatal(err)
	}
	if err := cni.DetachPort(f.context(), "v1", model.PodID{Namespace: "default", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	if got := f.vsctl("list-ports", "br-int"); !strings.Contains(got, "v1") {
		t.Errorf("late detach removed the new owner's port; left: %s", got)
	}
	for range 2 {
		if err := cni.DetachPort(f.context(), "v1", model.PodID{Namespace: "default", Name: "db"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.vsctl("list-ports", "br-int"); strings.Contains(got, "v1") {
		t.Errorf("port is still there: %s", got)
	}
}

func TestWatchAttachments(t *testing.T) {
	f := newFixture(t)
	c := f.open()
	f.ensure(c)
	f.veth("v1")
	f.veth("v2")
	first := attachment("web", "v1")
	var err error
	if first.OFPort, err = c.AttachPort(f.context(), first); err != nil {
		t.Fatal(err)
	}
	opts := cmpopts.EquateComparable(netip.Addr{})
	expect := func(events <-chan any, want any) {
		t.Helper()
		if diff := cmp.Diff(want, f.next(events), opts); diff != "" {
			t.Fatal(diff)
		}
	}

	agent := f.open()
	events, stop := f.watch(agent)
	expect(events, model.AttachmentUpdate{Attachment: &first})
	expect(events, "in sync")

	second := attachment("db", "v2")
	if second.OFPort, err = c.AttachPort(f.context(), second); err != nil {
		t.Fatal(err)
	}
	expect(events, model.AttachmentUpdate{Attachment: &second})

	// A new agent learns both from the database alone.
	stop()
	events, _ = f.watch(f.open())
	expect(events, model.AttachmentUpdate{Attachment: &first})
	expect(events, model.AttachmentUpdate{Attachment: &second})
	expect(events, "in sync")

	// A pod made anew between two glances is announced, though its port looks the same.
	f.vsctl("set", "interface", "v2", "external_ids:felixlike-sandbox=another")
	second.Sandbox = "another"
	expect(events, model.AttachmentUpdate{Attachment: &second})

	f.vsctl("set", "interface", "v2", "external_ids:felixlike-mac=nonsense")
	if e, ok := f.next(events).(string); !ok || !strings.Contains(e, "default/db") || !strings.Contains(e, "felixlike-mac") {
		t.Errorf("bad record: %v", e)
	}
	expect(events, model.AttachmentRemove{Pod: second.Pod, Interface: "v2"})
	if err := c.DetachPort(f.context(), "v1", first.Pod); err != nil {
		t.Fatal(err)
	}
	expect(events, model.AttachmentRemove{Pod: first.Pod, Interface: "v1"})
}

func TestReconnect(t *testing.T) {
	f := newFixture(t)
	c := f.open()
	f.ensure(c)
	f.veth("v1")
	f.veth("v2")
	if _, err := c.AttachPort(f.context(), attachment("web", "v1")); err != nil {
		t.Fatal(err)
	}
	events, _ := f.watch(c)
	f.next(events)
	f.next(events) // in sync
	if err := f.ovs.RestartDB(f.context()); err != nil {
		t.Fatal(err)
	}
	second := attachment("db", "v2")
	var err error
	eventually.True(t, "the second pod is attached", func() bool {
		ctx, cancel := context.WithTimeout(f.context(), time.Second)
		defer cancel()
		_, err = f.open().AttachPort(ctx, second)
		return err == nil
	}, func() string { return err.Error() })
	// The first attachment must not have gone and come again.
	if u, ok := f.next(events).(model.AttachmentUpdate); !ok || u.Attachment.Pod != second.Pod {
		t.Errorf("after reconnecting: %+v", u)
	}
	writes := c.Writes()
	f.ensure(c)
	if c.Writes() != writes {
		t.Errorf("reconnection caused %d operations", c.Writes()-writes)
	}
}

func TestValidate(t *testing.T) {
	good := Config{
		Bridge: "br-int", DatapathType: DatapathNetdev, TunnelType: "geneve", Gateway: "g", Tunnel: "t",
		GatewayMAC: GatewayMAC("n"), LocalIP: netip.MustParseAddr("10.0.0.1"),
	}
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"datapath": func(c *Config) { c.DatapathType = "dpdk" },
		"tunnel":   func(c *Config) { c.TunnelType = "stt" },
		"mac":      func(c *Config) { c.GatewayMAC = nil },
		"local":    func(c *Config) { c.LocalIP = netip.Addr{} },
		"gre":      func(c *Config) { c.TunnelType, c.LocalIP = "gre", netip.MustParseAddr("fd00::1") },
		"uplink":   func(c *Config) { c.Uplink = "eth0" },
		"names":    func(c *Config) { c.Gateway = "" },
	} {
		c := good
		change(&c)
		if c.validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestRemoveOtherConfig removes a key where the mark is, and nowhere else.
func TestRemoveOtherConfig(t *testing.T) {
	f := newFixture(t)
	c := f.open()
	vsctl := func(args ...string) string {
		return f.run("ovs-vsctl", append([]string{"--no-wait", "--db=unix:" + f.ovs.DBSocket()}, args...)...)
	}
	vsctl("set", "Open_vSwitch", ".", "other_config:theirs=1", "other_config:gone=true", "external_ids:mark=false")
	for _, step := range []struct {
		mark string
		want bool
		left string
	}{
		{"false", false, `{gone="true", theirs="1"}`},
		{"true", true, `{theirs="1"}`},
		{"true", true, `{theirs="1"}`},
	} {
		vsctl("set", "Open_vSwitch", ".", "external_ids:mark="+step.mark)
		got, err := c.RemoveOtherConfig(f.context(), "gone", "mark")
		if left := strings.TrimSpace(vsctl("get", "Open_vSwitch", ".", "other_config")); err != nil || got != step.want || left != step.left {
			t.Errorf("mark %s: %v, %v, and %s is left, want %v and %s", step.mark, got, err, left, step.want, step.left)
		}
	}
}
