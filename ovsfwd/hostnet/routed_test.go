package hostnet

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	socket "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

// TestRoutedPeers: a routed peer's own address is the next hop, and a change of the mode replaces the route in
// one step, in both directions.
func TestRoutedPeers(t *testing.T) {
	gw := inNamespace(t)
	tunnelled, routed, left := testState(), testState(), testState()
	routed.Peers[0].Routed = model.Families()
	left.Peers[0].Left = model.Families()
	r := NewReconciler()
	apply(t, r, tunnelled)
	for range 2 {
		apply(t, r, routed)
		for _, c := range []struct{ dst, via, src string }{
			{"10.10.1.7", "192.168.50.12", "192.168.50.11"}, {"fd00:10::a0a:107", "fd00:10::c0a8:320c", "fd00:10::c0a8:320b"},
		} {
			got := lookup(t, c.dst, "")
			if got.LinkIndex == gw.Attrs().Index || got.Gw.String() != c.via || got.Src.String() != c.src {
				t.Errorf("to %s: %v", c.dst, got)
			}
		}
		// Pods reach the peer's own address without the tunnel, too.
		if got := lookup(t, "192.168.50.12", "flx-gw0"); got.LinkIndex == gw.Attrs().Index {
			t.Errorf("pods to the peer's address: %v", got)
		}
		if n := apply(t, NewReconciler(), routed); n != 0 {
			t.Errorf("apply of a new process: %d writes", n)
		}
		apply(t, r, tunnelled)
		if got := lookup(t, "10.10.1.7", ""); got.LinkIndex != gw.Attrs().Index || got.Gw.String() != "10.10.1.1" {
			t.Errorf("after the mode changed back: %v", got)
		}
	}
	apply(t, r, left)
	const pods, prefixes = 2, 2
	if n := countRoutes(t, Protocol); n != pods+prefixes {
		t.Errorf("%d routes with a peer that the node network knows, want those to the pods and of the prefixes", n)
	}
	apply(t, r, routed)
	if err := netlink.LinkDel(gw); err != nil {
		t.Fatal(err)
	}
	if err := Remove("flx-gw0", DefaultRouteTable, DefaultRulePriority); err != nil {
		t.Fatal(err)
	}
	if n := countRoutes(t, Protocol); n != 0 {
		t.Errorf("%d routes are left without the gateway port", n)
	}
}

// TestHops: the neighbour on the way to a peer is found, asked for and followed.
func TestHops(t *testing.T) {
	inNamespace(t)
	link, err := netlink.LinkByName("uplink0")
	if err != nil {
		t.Fatal(err)
	}
	set := func(ip, mac string) {
		t.Helper()
		hw, _ := net.ParseMAC(mac)
		if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: net.ParseIP(ip), HardwareAddr: hw, State: netlink.NUD_REACHABLE}); err != nil {
			t.Fatal(err)
		}
	}
	route := &netlink.Route{Dst: netOf(netip.MustParsePrefix("192.168.60.0/24")), Gw: net.ParseIP("192.168.50.1")}
	if err := netlink.RouteAdd(route); err != nil {
		t.Fatal(err)
	}
	set("192.168.50.12", "02:00:00:00:00:12")
	set("192.168.50.1", "02:00:00:00:00:01")
	// The goroutines of Run have to be in this namespace: it is looked at directly.
	var got []model.Hop
	h := NewHops("flx-gw0")
	w := &hopWatch{hops: h, update: func(all []model.Hop) { got = all }, known: map[neighbour]model.MAC{}, began: time.Now().Add(-patience)}
	look := func(whole bool, want ...model.Hop) {
		t.Helper()
		is, err := w.look()
		if err != nil || is != whole || !slices.Equal(got, want) {
			t.Errorf("%v, whole %v, %v; want %v", got, is, err, want)
		}
	}
	near := model.Hop{Address: netip.MustParseAddr("192.168.50.12"), Interface: "uplink0", Neighbour: netip.MustParseAddr("192.168.50.12"), MAC: model.MAC{2, 0, 0, 0, 0, 0x12}}
	far := model.Hop{Address: netip.MustParseAddr("192.168.60.13"), Interface: "uplink0", Neighbour: netip.MustParseAddr("192.168.50.1"), MAC: model.MAC{2, 0, 0, 0, 0, 1}}
	near.InterfaceMAC, far.InterfaceMAC = model.MAC(link.Attrs().HardwareAddr), model.MAC(link.Attrs().HardwareAddr)
	silent := netip.MustParseAddr("192.168.50.14")
	h.SetPeers([]netip.Addr{near.Address, far.Address})
	if now, err := h.Now(t.Context()); err != nil || !slices.Equal(now, []model.Hop{near, far}) {
		t.Errorf("known at once: %v, %v", now, err)
	}
	h.SetPeers([]netip.Addr{near.Address, silent, far.Address})
	look(false, near, far)
	n, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
	if err != nil || !slices.ContainsFunc(n, func(n netlink.Neigh) bool { return n.IP.String() == silent.String() }) {
		t.Errorf("the silent neighbour was not asked for: %v, %v", n, err)
	}
	// A known address stays while the kernel has none, and moves with the neighbour.
	if err := netlink.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: net.ParseIP("192.168.50.12")}); err != nil {
		t.Fatal(err)
	}
	look(false, near, far)
	set("192.168.50.12", "02:00:00:00:00:99")
	near.MAC[5] = 0x99
	look(false, near, far)
	// Without a route there is no neighbour.
	if err := netlink.RouteDel(route); err != nil {
		t.Fatal(err)
	}
	look(false, near)
	h.SetPeers([]netip.Addr{near.Address})
	look(true, near)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewHops("flx-gw0").Run(ctx, nil, nil); err == nil {
		t.Error("Run ended without an error")
	}
}

// TestSilentNeighbours: a neighbour that does not answer is asked less and less often.
func TestSilentNeighbours(t *testing.T) {
	w := &hopWatch{}
	if got := w.next(false); got != askAgain {
		t.Errorf("before the first report: %s", got)
	}
	w.reported = true
	var got []time.Duration
	for range 8 {
		got = append(got, w.next(false)/time.Second)
	}
	if want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}; !slices.Equal(got, want) {
		t.Errorf("waits %d, want %d", got, want)
	}
	if got := w.next(true); got != lookAgain {
		t.Errorf("all are known: %s", got)
	}
	if got := w.next(false); got != askAgain {
		t.Errorf("one is silent again: %s", got)
	}
}

// TestLinksOfHops: a notification of a link is a reason to look only if the link leads to a peer.
func TestLinksOfHops(t *testing.T) {
	known := map[neighbour]model.MAC{{3, netip.MustParseAddr("192.168.50.12")}: {}}
	for index, want := range map[uint32]bool{3: true, 4: false} {
		m := socket.Message{Header: socket.Header{Type: unix.RTM_NEWLINK}, Data: make([]byte, unix.SizeofIfInfomsg)}
		binary.NativeEndian.PutUint32(m.Data[4:], index)
		if got := moves(m, known); got != want {
			t.Errorf("link %d: %v", index, got)
		}
	}
}
