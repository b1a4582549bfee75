package property

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/eventually"
)

const (
	bridgeName  = "br-int"
	gatewayPort = "flx-gw0"
)

// ovs is a private Open vSwitch in a network namespace, with the bridge that the
// agent makes on it: a gateway and a tunnel port, and an uplink on a bridge of
// its own.
type ovs struct {
	t       *testing.T
	daemons *ovsdaemon.Daemons
	db      *ovsdb.Client
	control *vswitchd.Client
	config  ovsdb.Config
	nodes   underlay
	// pool are the ports for pods, by the pods' names.
	pool map[string]uint32
}

// newOVS starts one in the network namespace of the thread, for the node of that
// name.
func newOVS(t *testing.T, node string, nodes underlay) *ovs {
	t.Helper()
	if err := ovsdaemon.Available(); err != nil {
		t.Skip(err)
	}
	o := &ovs{t: t, pool: map[string]uint32{}, nodes: nodes, config: ovsdb.Config{
		Bridge: bridgeName, DatapathType: ovsdb.DatapathNetdev, TunnelType: "geneve", Gateway: gatewayPort, Tunnel: "flx-tun0",
		GatewayMAC: ovsdb.GatewayMAC(node), LocalIP: nodes[node], MTU: 1450, NodeName: node,
		Uplink: "uplink0", UplinkMAC: net.HardwareAddr{2, 0, 0, 0, 0, 0x77},
	}}
	// The kernel's own packets would only disturb.
	for _, which := range []string{"all", "default"} {
		o.must("no IPv6", os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0o644))
	}
	dir, err := ovsdaemon.TempDir()
	o.must("run directory", err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	o.must("processor", onLastProcessor(func() { o.daemons, err = ovsdaemon.Start(o.context(), ovsdaemon.Options{Dir: dir}) }))
	o.must("start", err)
	t.Cleanup(func() {
		if err := o.daemons.Stop(); err != nil {
			t.Error(err)
		}
	})
	o.config.Socket, o.control = o.daemons.DBSocket(), vswitchd.New(dir, ovsdb.DatapathNetdev)
	o.veth("uplink0")
	o.db, err = ovsdb.Open(o.context(), o.config)
	o.must("open", err)
	t.Cleanup(o.db.Close)
	o.must("bridge", o.db.EnsureBridge(o.context()))
	o.up(gatewayPort)
	o.openTunnel()
	return o
}

// openTunnel gives the node's address to the physical bridge, and waits until
// tunnels use it.
func (o *ovs) openTunnel() {
	o.t.Helper()
	phy := o.up(ovsdb.PhysicalBridge)
	o.must("underlay address", netlink.AddrAdd(phy, &netlink.Addr{IPNet: &net.IPNet{IP: o.config.LocalIP.AsSlice(), Mask: net.CIDRMask(16, 32)}}))
	var ports, routes string
	var err error
	eventually.True(o.t, "the tunnel opens", func() bool {
		var err1, err2, err3 error
		ports, err1 = o.appctl("tnl/ports/show")
		routes, err2 = o.appctl("ovs/route/show")
		_, err3 = os.Stat(o.management())
		err = errors.Join(err1, err2, err3)
		return err == nil && strings.Contains(ports, "genev_sys") && strings.Contains(routes, o.config.LocalIP.String())
	}, func() string { return fmt.Sprintf("%v\n%s\n%s", err, ports, routes) })
}

// attach makes a pair of interfaces, one of them on the bridge, and returns its
// port number there.
func (o *ovs) attach(name string) uint32 {
	o.t.Helper()
	o.veth(name)
	id := model.PodID{Namespace: "pool", Name: name}
	n, err := o.db.AttachPort(o.context(), model.Attachment{Pod: id, Interface: name, MAC: cni.MAC(id)})
	o.must("attach "+name, err)
	return n
}

// veth makes a pair of interfaces, the other one with an x behind its name.
func (o *ovs) veth(name string) {
	o.t.Helper()
	o.must("add "+name, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "x"}))
	o.up(name)
	o.up(name + "x")
}

func (o *ovs) up(name string) netlink.Link {
	o.t.Helper()
	l, err := netlink.LinkByName(name)
	o.must(name, err)
	o.must(name+" up", netlink.LinkSetUp(l))
	return l
}

// neighbour sets the MAC address of an underlay host.
func (o *ovs) neighbour(address netip.Addr, mac net.HardwareAddr) {
	o.t.Helper()
	_, err := o.appctl("tnl/neigh/set", ovsdb.PhysicalBridge, address.String(), mac.String())
	o.must("neighbour", err)
}

func (o *ovs) must(what string, err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatalf("open vswitch of %s: %s: %v", o.config.NodeName, what, err)
	}
}

func (o *ovs) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
	o.t.Cleanup(cancel)
	return ctx
}

// management is the socket of the bridge's OpenFlow service.
func (o *ovs) management() string { return filepath.Join(o.daemons.Dir(), bridgeName+".mgmt") }

func (o *ovs) appctl(args ...string) (string, error) {
	return o.control.Call(context.Background(), args[0], args[1:]...)
}

func (o *ovs) ofctl(command string, args ...string) (string, error) {
	fixed := []string{"-O", "OpenFlow15", "--no-names", "--no-stats", command, "unix:" + o.management()}
	return run("ovs-ofctl", append(fixed, args...)...)
}

// forget makes the datapath ask the flow tables again about each packet. Otherwise it
// would use its cached flows for a moment after a change.
func (o *ovs) forget() error {
	_, err := o.appctl("revalidator/purge")
	return err
}

// onLastProcessor runs f with the thread on that processor, so that daemons which f
// starts keep the order of packets and do not stand in the test's way.
func onLastProcessor(f func()) error {
	var before, last unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	last.Set(allowed[len(allowed)-1])
	if err := unix.SchedSetaffinity(0, &last); err != nil {
		return err
	}
	f()
	return unix.SchedSetaffinity(0, &before)
}

// flows returns the flows of the bridge that the agent has installed, in order,
// without counters.
func (o *ovs) flows() (string, error) {
	dumped, err := o.ofctl("dump-flows")
	var all []string
	for line := range strings.Lines(dumped) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "cookie=0xf11c") || strings.HasPrefix(line, "cookie=0xf11d") {
			all = append(all, line)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n"), err
}
