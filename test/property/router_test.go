package property

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
)

// port is one of a router's links as seen from the other side: packets are
// put in and taken out raw.
type port struct {
	fd    int
	index int
	peer  net.HardwareAddr
}

// router is a network namespace that forwards like a node does: what the
// bridge would bring comes in by the gateway port, everything leaves by it.
type router struct {
	ns, outside    netns.NsHandle
	gateway, other *port
	engine         *policy.Engine
	managers       []managers.Manager
	table          *nftables.Table
	node           string
}

// nextHop stands for the bridge: all routes of a router lead to it.
var nextHop = map[model.Family]netip.Addr{
	model.IPv4: netip.MustParseAddr("169.254.1.1"), model.IPv6: netip.MustParseAddr("fe80::1"),
}

// newRouter makes a router for the node of that name. The calling goroutine
// must be locked to its thread, which the router moves between namespaces.
func newRouter(t *testing.T, node string) *router {
	t.Helper()
	r := &router{node: node, engine: policy.New(node)}
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
	r.table = nftables.New(nftables.Options{NetNS: int(r.ns)})
	renderer := rules.NewRenderer("flx-gw0", rules.NFTablesNameLength)
	r.managers = []managers.Manager{
		managers.NewStaticManager(node, renderer, r.table, r.table),
		managers.NewIPSetManager(r.table),
		managers.NewPolicyManager(node, renderer, r.table),
		managers.NewEndpointManager(renderer, r.table, managers.NewMapDispatcher(r.table)),
	}
	return r
}

func openPort(t *testing.T, name string) *port {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: l.Attrs().Index}); err != nil {
		t.Fatal(err)
	}
	return &port{fd: fd, index: l.Attrs().Index}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// update hands updates to the managers.
func (r *router) update(updates ...model.Update) {
	for _, u := range updates {
		for _, m := range r.managers {
			m.OnUpdate(u)
		}
	}
}

// apply programs what the managers want and returns the mutating messages.
func (r *router) apply() (int, error) {
	r.update(r.engine.Flush()...)
	for _, m := range r.managers {
		m.CompleteDeferredWork()
	}
	res, err := r.table.Apply(context.Background())
	return res.Messages, err
}

// probe is one packet on its way in.
type probe struct {
	id      uint16
	in      *port
	payload []byte
}

// forward sends the probes in and returns the identities that came out. It
// ends when the sentinel, which no policy concerns, has come out: veth and
// forwarding keep the order of packets that one processor sends.
func (r *router) forward(probes []probe, sentinel probe) (map[uint16]bool, error) {
	r.gateway.discard()
	for _, p := range append(probes, sentinel) {
		if err := p.in.send(p.payload); err != nil {
			return nil, err
		}
	}
	through := map[uint16]bool{}
	deadline := time.Now().Add(5 * time.Second)
	buf := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(r.gateway.fd, buf, 0)
		switch {
		case err == unix.EAGAIN:
			if time.Now().After(deadline) {
				return nil, fmt.Errorf("%s: the sentinel did not come out", r.node)
			}
			runtime.Gosched()
			continue
		case err != nil:
			return nil, err
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING || n < 14 {
			continue
		}
		id := identity(buf[14:n])
		if id == sentinel.id {
			return through, nil
		}
		through[id] = true
	}
}

func (p *port) send(ip []byte) error {
	kind := uint16(etherIPv4)
	if ip[0]>>4 == 6 {
		kind = etherIPv6
	}
	frame := append(append([]byte{}, p.peer...), 2, 0, 0, 0, 0, 1, byte(kind>>8), byte(kind))
	to := &unix.SockaddrLinklayer{Ifindex: p.index, Protocol: htons(kind)}
	if err := unix.Sendto(p.fd, append(frame, ip...), 0, to); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// discard empties the receive queue.
func (p *port) discard() {
	buf := make([]byte, 1)
	for {
		if _, _, err := unix.Recvfrom(p.fd, buf, 0); err != nil {
			return
		}
	}
}
