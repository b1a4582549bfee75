package property

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// router is a network namespace that forwards like a node does: the
// bridge's packets come in by the gateway port, everything leaves by it.
type router struct {
	*dataplane
	ns, outside    netns.NsHandle
	gateway, other *port
}

// nextHop stands for the bridge: all routes of a router lead to it.
var nextHop = map[model.Family]netip.Addr{
	model.IPv4: netip.MustParseAddr("169.254.1.1"), model.IPv6: netip.MustParseAddr("fe80::1"),
}

// newRouter makes a router for the node of that name, with the backend. The
// calling goroutine must be locked to its thread, which the router moves between
// namespaces.
func newRouter(t *testing.T, backend, node string) *router {
	t.Helper()
	r := &router{}
	for _, ns := range []*netns.NsHandle{&r.outside, &r.ns} {
		h, err := netns.New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		*ns = h
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"flx-gw0", "uplink0"} {
		must("add "+name, netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(int(r.outside)),
		}))
	}
	must("enter", netns.Set(r.outside))
	r.gateway, r.other = openPort(t, "flx-gw0"), openPort(t, "uplink0")
	macs := map[string]net.HardwareAddr{}
	for _, name := range []string{"flx-gw0", "uplink0"} {
		l, err := netlink.LinkByName(name)
		must(name, err)
		macs[name] = l.Attrs().HardwareAddr
	}
	must("enter", netns.Set(r.ns))
	for name, p := range map[string]*port{"flx-gw0": r.gateway, "uplink0": r.other} {
		l, err := netlink.LinkByName(name)
		must(name, err)
		p.peer = l.Attrs().HardwareAddr
		must("up", netlink.LinkSetUp(l))
		for _, key := range []string{"ipv4/conf/" + name + "/rp_filter", "ipv4/conf/all/rp_filter"} {
			must(key, os.WriteFile("/proc/sys/net/"+key, []byte("0"), 0o644))
		}
	}
	must("forward", os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
	must("forward", os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0o644))
	// The kernel refuses on-link routes while it has no local table.
	lo, err := netlink.LinkByName("lo")
	must("lo", err)
	must("lo up", netlink.LinkSetUp(lo))
	gw, err := netlink.LinkByName("flx-gw0")
	must("flx-gw0", err)
	for f, hop := range nextHop {
		family, everything := netlink.FAMILY_V4, "0.0.0.0/0"
		if f == model.IPv6 {
			family, everything = netlink.FAMILY_V6, "::/0"
		}
		_, all, err := net.ParseCIDR(everything)
		must(everything, err)
		must("neighbour", netlink.NeighSet(&netlink.Neigh{
			LinkIndex: gw.Attrs().Index, Family: family, State: netlink.NUD_PERMANENT, IP: hop.AsSlice(), HardwareAddr: macs["flx-gw0"],
		}))
		must("route "+everything, netlink.RouteAdd(&netlink.Route{
			LinkIndex: gw.Attrs().Index, Dst: all, Gw: hop.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
		}))
	}
	// Connections are tracked while a rule asks for it. Those of other programs
	// on a node do, also while our table is gone.
	theirs := exec.Command("nft", "add table inet theirs; add chain inet theirs forward { type filter hook forward priority 10; }; add rule inet theirs forward ct state established counter")
	out, err := theirs.CombinedOutput()
	must(string(out), err)
	r.dataplane, err = newDataplane(backend, node, kernel{netns: int(r.ns)})
	must("backend "+backend, err)
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	// A link that has just come up drops packets until the kernel has found
	// the time to give it a queue.
	must("first packet", r.round(nil, func() uint16 { return 1 }, map[uint16]bool{}))
	return r
}

func (r *router) plane() *dataplane { return r.dataplane }

// switchesOwn: a node's own traffic goes past FORWARD.
func (r *router) switchesOwn() bool { return false }

func (r *router) wipe() error { return r.dataplane.remove() }

// openWithoutPolicy: without the table, the host forwards.
func (r *router) openWithoutPolicy() bool { return true }

// sentinel is a packet that no policy judges.
func sentinel(id uint16) flow {
	return flow{id: id, Packet: oracle.Packet{
		Source: netip.MustParseAddr("198.51.100.200"), Destination: netip.MustParseAddr("198.51.100.201"),
		Protocol: model.UDP, Port: 9,
	}}
}

// round ends when a sentinel that was sent after the probes has come out: veth and
// forwarding keep the order of packets that one processor sends.
func (r *router) round(probes []probe, newID func() uint16, through map[uint16]bool) error {
	r.gateway.discard()
	for _, p := range probes {
		in := r.gateway
		if p.in.side == outside {
			in = r.other
		}
		if err := in.sendIP(p.payload); err != nil {
			return err
		}
	}
	last := sentinel(newID())
	for deadline := time.Now().Add(giveUp); time.Now().Before(deadline); {
		if err := r.gateway.sendIP(last.opening()); err != nil {
			return err
		}
		for late := time.Now().Add(again); time.Now().Before(late); {
			if err := await(time.Until(late), r.gateway); err != nil {
				return err
			}
			frame, err := r.gateway.receive()
			if err != nil {
				return err
			}
			id := identity(frame, etherLen, hopLimit-1)
			if id == last.id {
				return nil
			}
			through[id] = true
		}
	}
	return fmt.Errorf("%s: no sentinel came out within %s", r.node, giveUp)
}

// sendIP sends a packet to the router.
func (p *port) sendIP(ip []byte) error {
	return p.send(ethernet(p.peer, net.HardwareAddr{2, 0, 0, 0, 0, 1}, ip))
}
