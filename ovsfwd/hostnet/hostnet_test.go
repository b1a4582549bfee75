package hostnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

// inNamespace runs the rest of the test on a thread in a namespace of its
// own, with a gateway port.
func inNamespace(t *testing.T) netlink.Link {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	// The thread is not given back: it ends with the test's goroutine.
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	for _, name := range []string{"flx-gw0", "uplink0"} {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-p"}
		if err := netlink.LinkAdd(veth); err != nil {
			t.Fatal(err)
		}
		peer, err := netlink.LinkByName(name + "-p")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(peer); err != nil {
			t.Fatal(err)
		}
	}
	uplink, err := netlink.LinkByName("uplink0")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(uplink); err != nil {
		t.Fatal(err)
	}
	addresses := []string{"192.168.50.11/24", "fd00:10::c0a8:320b/120"}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		addresses = addresses[:1]
	}
	for _, a := range addresses {
		addr := &netlink.Addr{IPNet: netOf(netip.MustParsePrefix(a)), Flags: 0x02}
		if err := netlink.AddrAdd(uplink, addr); err != nil {
			t.Fatal(err)
		}
	}
	gw, err := netlink.LinkByName("flx-gw0")
	if err != nil {
		t.Fatal(err)
	}
	return gw
}

func testState() State {
	mac, _ := net.ParseMAC("aa:bb:cc:dd:ee:ff")
	pod := net.HardwareAddr{2, 0, 0, 0, 0, 5}
	return State{
		Gateway:          "flx-gw0",
		GatewayAddresses: []netip.Prefix{netip.MustParsePrefix("10.10.0.1/24"), netip.MustParsePrefix("fd00:10::a0a:1/120")},
		NodeAddresses:    []netip.Addr{netip.MustParseAddr("192.168.50.11"), netip.MustParseAddr("fd00:10::c0a8:320b")},
		Peers: []Peer{{
			PodCIDRs:      []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24"), netip.MustParsePrefix("fd00:10::a0a:100/120")},
			Gateways:      []netip.Addr{netip.MustParseAddr("10.10.1.1"), netip.MustParseAddr("fd00:10::a0a:101")},
			NodeAddresses: []netip.Addr{netip.MustParseAddr("192.168.50.12"), netip.MustParseAddr("fd00:10::c0a8:320c")},
		}},
		Pods:       map[netip.Addr]net.HardwareAddr{netip.MustParseAddr("10.10.0.5"): pod, netip.MustParseAddr("fd00:10::a0a:5"): pod},
		VirtualMAC: mac, RouteTable: DefaultRouteTable, RulePriority: DefaultRulePriority,
	}
}

func apply(t *testing.T, r *Reconciler, s State) int {
	t.Helper()
	r.SetState(s)
	r.SetMTU(1450)
	did, err := r.Apply(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return did.Writes
}

func lookup(t *testing.T, dst, iif string) netlink.Route {
	t.Helper()
	routes, err := netlink.RouteGetWithOptions(net.ParseIP(dst), &netlink.RouteGetOptions{Iif: iif, SrcAddr: srcFor(dst, iif)})
	if err != nil || len(routes) == 0 {
		t.Fatalf("route to %s iif %q: %v", dst, iif, err)
	}
	return routes[0]
}

func srcFor(dst, iif string) net.IP {
	switch {
	case iif == "":
		return nil
	case strings.Contains(dst, ":"):
		return net.ParseIP("fd00:10::a0a:5")
	}
	return net.ParseIP("10.10.0.5")
}

func TestRoutesLeadPodsAndPeersThroughTheGateway(t *testing.T) {
	gw := inNamespace(t)
	if n := apply(t, NewReconciler(), testState()); n == 0 {
		t.Fatal("first apply wrote nothing")
	}
	for _, c := range []struct{ dst, iif, via, src string }{
		{"10.10.1.7", "", "10.10.1.1", "192.168.50.11"},
		{"fd00:10::a0a:107", "", "fd00:10::a0a:101", "fd00:10::c0a8:320b"},
		{"10.10.1.7", "flx-gw0", "10.10.1.1", ""},
		{"192.168.50.12", "flx-gw0", "10.10.1.1", ""},
		{"fd00:10::c0a8:320c", "flx-gw0", "fd00:10::a0a:101", ""},
	} {
		r := lookup(t, c.dst, c.iif)
		if r.LinkIndex != gw.Attrs().Index || r.Gw.String() != c.via {
			t.Errorf("to %s iif %q: dev %d via %s, want the gateway port via %s", c.dst, c.iif, r.LinkIndex, r.Gw, c.via)
		}
		if c.src != "" && r.Src.String() != c.src {
			t.Errorf("to %s: source %s, want %s", c.dst, r.Src, c.src)
		}
	}
	if r := lookup(t, "192.168.50.12", ""); r.LinkIndex == gw.Attrs().Index {
		t.Error("the node's own traffic to a peer's address must not take the tunnel: the tunnel itself goes there")
	}
}

func TestSecondApplyAndNewProcessWriteNothing(t *testing.T) {
	inNamespace(t)
	r := NewReconciler()
	apply(t, r, testState())
	if n := apply(t, r, testState()); n != 0 {
		t.Errorf("second apply: %d writes", n)
	}
	if n := apply(t, NewReconciler(), testState()); n != 0 {
		t.Errorf("apply of a new process: %d writes", n)
	}
}

// TestIPv4Only passes on a kernel booted with ipv6.disable=1, too.
func TestIPv4Only(t *testing.T) {
	gw := inNamespace(t)
	s := testState()
	s.GatewayAddresses, s.NodeAddresses = s.GatewayAddresses[:1], s.NodeAddresses[:1]
	p := &s.Peers[0]
	p.PodCIDRs, p.Gateways, p.NodeAddresses = p.PodCIDRs[:1], p.Gateways[:1], p.NodeAddresses[:1]
	r := NewReconciler()
	apply(t, r, s)
	for _, iif := range []string{"", "flx-gw0"} {
		if got := lookup(t, "10.10.1.7", iif); got.LinkIndex != gw.Attrs().Index {
			t.Errorf("a peer's pod from %q is at interface %d, want the gateway port", iif, got.LinkIndex)
		}
	}
	if n := apply(t, r, s); n != 0 {
		t.Errorf("second apply: %d writes", n)
	}
}

func TestChangedRouteIsReplacedInOneStep(t *testing.T) {
	inNamespace(t)
	apply(t, NewReconciler(), testState())
	before := countRoutes(t, Protocol)
	changed := testState()
	changed.NodeAddresses = nil
	// One write for the route of each family: nothing is deleted on the way.
	if n := apply(t, NewReconciler(), changed); n != 2 {
		t.Errorf("%d writes for two changed routes, want 2", n)
	}
	if n := countRoutes(t, Protocol); n != before {
		t.Errorf("%d routes, want %d", n, before)
	}
	if r := lookup(t, "10.10.1.7", ""); r.Src.String() == "192.168.50.11" {
		t.Error("the old source is still there")
	}
}

func TestTwoPeersWithOneAddress(t *testing.T) {
	inNamespace(t)
	s := testState()
	twin := Peer{
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.2.0/24")}, Gateways: []netip.Addr{netip.MustParseAddr("10.10.2.1")},
		NodeAddresses: s.Peers[0].NodeAddresses,
	}
	s.Peers = append(s.Peers, twin)
	apply(t, NewReconciler(), s)
	if r := lookup(t, "192.168.50.12", "flx-gw0"); r.Gw.String() != "10.10.1.1" {
		t.Errorf("the address leads to %s, want the first peer", r.Gw)
	}
	if r := lookup(t, "10.10.2.7", ""); r.Gw.String() != "10.10.2.1" {
		t.Errorf("the second peer's pods are at %s", r.Gw)
	}
}

func TestStaleGoesForeignStays(t *testing.T) {
	gw := inNamespace(t)
	apply(t, NewReconciler(), testState())
	foreign := &netlink.Route{LinkIndex: gw.Attrs().Index, Dst: netOf(netip.MustParsePrefix("203.0.113.0/24")), Protocol: 4}
	if err := netlink.RouteAdd(foreign); err != nil {
		t.Fatal(err)
	}
	alone := testState()
	alone.Peers = nil
	apply(t, NewReconciler(), alone)
	const pods, prefixes = 2, 2
	if n := countRoutes(t, Protocol); n != pods+prefixes {
		t.Errorf("%d of our routes left without peers, want those to the pods and of the prefixes", n)
	}
	if n := countRoutes(t, 4); n != 1 {
		t.Errorf("foreign route: %d left, want 1", n)
	}
	if err := Remove("flx-gw0", DefaultRouteTable, DefaultRulePriority); err != nil {
		t.Fatal(err)
	}
	addrs, err := netlink.AddrList(gw, netlink.FAMILY_V4)
	if err != nil || len(addrs) != 0 {
		t.Errorf("addresses after remove: %v %v", addrs, err)
	}
}

func TestNeighboursFollowPods(t *testing.T) {
	gw := inNamespace(t)
	mac := func(s string) net.HardwareAddr { m, _ := net.ParseMAC(s); return m }
	s := testState()
	s.Peers = nil
	v4, v6 := netip.MustParseAddr("10.10.0.5"), netip.MustParseAddr("fd00:10::a0a:5")
	s.Pods = map[netip.Addr]net.HardwareAddr{v4: mac("02:00:00:00:00:01"), v6: mac("02:00:00:00:00:01")}
	r := NewReconciler()
	apply(t, r, s)
	s.Pods = map[netip.Addr]net.HardwareAddr{v4: mac("02:00:00:00:00:02")}
	if n := apply(t, r, s); n != 3 {
		t.Errorf("%d writes for an address with another MAC and one without a pod (neighbour and route), want 3", n)
	}
	neighbours, err := netlink.NeighList(gw.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range neighbours {
		if n.IP.String() == v4.String() && n.HardwareAddr.String() != "02:00:00:00:00:02" {
			t.Errorf("%s is at %s: the MAC of the pod that had the address before", n.IP, n.HardwareAddr)
		}
	}
	if got := permanent(t, gw); got != "10.10.0.5" {
		t.Errorf("permanent neighbours: %s", got)
	}
}

// TestOnlyPodsHaveARoute: the kernel asks nobody on the link, whatever address of the prefix gets a packet, and sends none of them by the default route.
func TestOnlyPodsHaveARoute(t *testing.T) {
	gw := inNamespace(t)
	for _, router := range []string{"192.168.50.1", "fd00:10::c0a8:3201"} {
		if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(router)}); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, NewReconciler(), testState())
	for _, dst := range []string{"10.10.0.5", "fd00:10::a0a:5"} {
		if r := lookup(t, dst, ""); r.LinkIndex != gw.Attrs().Index || len(r.Gw) != 0 {
			t.Errorf("to pod %s: interface %d via %v, want the gateway port", dst, r.LinkIndex, r.Gw)
		}
	}
	before := permanent(t, gw)
	for i := 2; i < 255; i++ {
		for _, dst := range []string{fmt.Sprintf("10.10.0.%d", i), fmt.Sprintf("fd00:10::a0a:%x", i)} {
			c, err := net.Dial("udp", net.JoinHostPort(dst, "9"))
			if pod := strings.HasSuffix(dst, ".5") || strings.HasSuffix(dst, ":5"); (err == nil) != pod {
				t.Fatalf("to %s: %v", dst, err)
			}
			if err == nil {
				_, _ = c.Write([]byte("felixlike"))
				_ = c.Close()
			}
		}
	}
	var entries []string
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := netlink.NeighList(gw.Attrs().Index, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range all {
			if !n.IP.IsMulticast() {
				entries = append(entries, n.IP.String())
			}
		}
	}
	if got := strings.Join(entries, " "); got != before {
		t.Errorf("neighbours after packets to the whole prefix: %s; want the permanent ones: %s", got, before)
	}
}

// TestPrefixOfAnEarlierVersion: the port has the addresses of an earlier version, with a route of the prefix. While they change, each packet
// to a pod leaves by the port.
func TestPrefixOfAnEarlierVersion(t *testing.T) {
	gw := inNamespace(t)
	if err := netlink.LinkSetUp(gw); err != nil {
		t.Fatal(err)
	}
	for _, a := range testState().GatewayAddresses {
		if err := netlink.AddrAdd(gw, &netlink.Addr{IPNet: netOf(a), Flags: unix.IFA_F_NODAD}); err != nil {
			t.Fatal(err)
		}
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	stop, seen := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(seen)
		for i := 0; ; i++ {
			for _, dst := range []string{"10.10.0.5", "fd00:10::a0a:5", "10.10.0.1"} {
				routes, err := handle.RouteGet(net.ParseIP(dst))
				if err != nil || len(routes) != 1 || routes[0].LinkIndex != gw.Attrs().Index && dst != "10.10.0.1" {
					seen <- fmt.Sprintf("after %d lookups: %s: %v %v", i, dst, routes, err)
					return
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	r := NewReconciler()
	apply(t, r, testState())
	close(stop)
	if what, failed := <-seen; failed {
		t.Error(what)
	}
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(gw, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, route := range routes {
			if ones, bits := route.Dst.Mask.Size(); route.Protocol == unix.RTPROT_KERNEL && ones < bits && !route.Dst.IP.IsLinkLocalUnicast() {
				t.Errorf("the route of the prefix is left: %s", route)
			}
		}
	}
	if n := apply(t, r, testState()); n != 0 {
		t.Errorf("second apply: %d writes", n)
	}
}

// TestFailedRouteKeepsTheOldPrefix: while a route cannot be written, an address of an earlier version stays. Its route may be the only one to pods.
func TestFailedRouteKeepsTheOldPrefix(t *testing.T) {
	gw := inNamespace(t)
	old := testState().GatewayAddresses[0]
	if err := netlink.AddrAdd(gw, &netlink.Addr{IPNet: netOf(old)}); err != nil {
		t.Fatal(err)
	}
	has := func() bool {
		all, err := netlink.AddrList(gw, netlink.FAMILY_V4)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(a netlink.Addr) bool { return prefixOf(a.IPNet) == old })
	}
	unreachable := testState()
	unreachable.Peers[0].Routed = model.Families()
	unreachable.Peers[0].NodeAddresses = []netip.Addr{netip.MustParseAddr("203.0.113.77"), netip.MustParseAddr("fd00:99::77")}
	r := NewReconciler()
	r.SetState(unreachable)
	if _, err := r.Apply(t.Context()); err == nil || !has() {
		t.Errorf("after an apply that failed with %v: the address is there: %v", err, has())
	}
	if apply(t, r, testState()); has() {
		t.Error("the address is left")
	}
}

func TestForeignNeighboursStay(t *testing.T) {
	gw := inNamespace(t)
	apply(t, NewReconciler(), testState())
	mac, _ := net.ParseMAC("02:00:00:00:00:09")
	for _, ip := range []string{"198.51.100.77", "fd00:99::4d"} {
		n := &netlink.Neigh{LinkIndex: gw.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(ip), HardwareAddr: mac}
		if err := netlink.NeighSet(n); err != nil {
			t.Fatal(err)
		}
	}
	if n := apply(t, NewReconciler(), testState()); n != 0 {
		t.Errorf("%d writes beside foreign neighbours, want none", n)
	}
	alone := testState()
	alone.Peers, alone.Pods = nil, nil
	apply(t, NewReconciler(), alone)
	if got := permanent(t, gw); got != "198.51.100.77 fd00:99::4d" {
		t.Errorf("neighbours without peers: %s, want the foreign ones", got)
	}
	apply(t, NewReconciler(), testState())
	if err := Remove("flx-gw0", DefaultRouteTable, DefaultRulePriority); err != nil {
		t.Fatal(err)
	}
	// The kernel itself drops all of a device's ARP entries with its last IPv4
	// address, so the test can check the IPv6 one only.
	if got := permanent(t, gw); got != "fd00:99::4d" {
		t.Errorf("neighbours after remove: %s, want the foreign IPv6 one alone", got)
	}
}

func TestForeignRouteIsNotReplaced(t *testing.T) {
	gw := inNamespace(t)
	if err := netlink.LinkSetUp(gw); err != nil {
		t.Fatal(err)
	}
	for _, p := range testState().Peers[0].PodCIDRs {
		// The metric is the one that the kernel gives IPv6 routes without any.
		foreign := &netlink.Route{LinkIndex: gw.Attrs().Index, Dst: netOf(p), Protocol: 4}
		if err := netlink.RouteAdd(foreign); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReconciler()
	r.SetState(testState())
	if _, err := r.Apply(context.Background()); err == nil || !strings.Contains(err.Error(), "add route 10.10.1.0/24") {
		t.Errorf("error %v does not name the route that is in the way", err)
	}
	if n := countRoutes(t, 4); n != 2 {
		t.Errorf("%d foreign routes left, want 2", n)
	}
}

func TestRemoveAfterThePortIsGone(t *testing.T) {
	gw := inNamespace(t)
	apply(t, NewReconciler(), testState())
	if err := netlink.LinkDel(gw); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Remove("flx-gw0", DefaultRouteTable, DefaultRulePriority); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := netlink.RuleList(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rules {
			if r.Priority == DefaultRulePriority {
				t.Errorf("policy rule left: %v", r)
			}
		}
	}
}

func TestDeletedEntriesComeBack(t *testing.T) {
	inNamespace(t)
	r := NewReconciler()
	apply(t, r, testState())
	before := countRoutes(t, Protocol)
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: Protocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil || len(routes) == 0 {
		t.Fatal(routes, err)
	}
	if err := netlink.RouteDel(&routes[0]); err != nil {
		t.Fatal(err)
	}
	r.Invalidate()
	if did, err := r.Apply(context.Background()); err != nil || did.Writes != 1 {
		t.Errorf("repair: %d writes, %v; want 1", did.Writes, err)
	}
	if n := countRoutes(t, Protocol); n != before {
		t.Errorf("%d routes after repair, want %d", n, before)
	}
}

// TestOwnAddressIsNoForeignChange: a node with another pod prefix gets another address. The routes and neighbours that the kernel removes with the old
// one are not counted as the work of another program; what another one removes is.
func TestOwnAddressIsNoForeignChange(t *testing.T) {
	gw := inNamespace(t)
	r, s := NewReconciler(), testState()
	mac, _ := net.ParseMAC("02:00:00:00:00:01")
	s.Pods = map[netip.Addr]net.HardwareAddr{netip.MustParseAddr("10.10.0.5"): mac, netip.MustParseAddr("fd00:10::a0a:5"): mac}
	apply(t, r, s)
	before, neighbours := countRoutes(t, Protocol), permanent(t, gw)
	for _, change := range []struct {
		prefixes []netip.Prefix
		routes   int
	}{
		// The pods, of the former prefix, have no route of their own then.
		{[]netip.Prefix{netip.MustParsePrefix("10.10.7.1/24"), netip.MustParsePrefix("fd00:10::a0a:701/120")}, before - len(s.Pods)},
		{s.GatewayAddresses, before},
	} {
		prefixes := change.prefixes
		s.GatewayAddresses = prefixes
		r.SetState(s)
		did, err := r.Apply(t.Context())
		if err != nil || len(did.Repaired) > 0 || did.Writes < 2 {
			t.Errorf("%v: %d writes, repaired %v, %v", prefixes, did.Writes, did.Repaired, err)
		}
		if n, now := countRoutes(t, Protocol), permanent(t, gw); n != change.routes || now != neighbours {
			t.Errorf("%v: %d routes, want %d; neighbours %s, want %s", prefixes, n, change.routes, now, neighbours)
		}
	}
	if err := netlink.NeighDel(&netlink.Neigh{LinkIndex: gw.Attrs().Index, IP: net.ParseIP("10.10.0.5")}); err != nil {
		t.Fatal(err)
	}
	r.Invalidate()
	if did, err := r.Apply(t.Context()); err != nil || len(did.Repaired) != 1 {
		t.Errorf("repaired %v, %v; want the neighbour", did.Repaired, err)
	}
}

func TestMissingGatewayPortIsNamed(t *testing.T) {
	inNamespace(t)
	r := NewReconciler()
	s := testState()
	s.Gateway = "flx-none"
	r.SetState(s)
	if _, err := r.Apply(context.Background()); err == nil || !strings.Contains(err.Error(), "flx-none") {
		t.Errorf("error %v does not name the port", err)
	}
}

// permanent lists the unicast addresses of the port's permanent neighbours.
func permanent(t *testing.T, link netlink.Link) string {
	t.Helper()
	var all []string
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		neighbours, err := netlink.NeighList(link.Attrs().Index, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range neighbours {
			if n.State&netlink.NUD_PERMANENT != 0 && !n.IP.IsMulticast() {
				all = append(all, n.IP.String())
			}
		}
	}
	return strings.Join(all, " ")
}

func countRoutes(t *testing.T, protocol netlink.RouteProtocol) int {
	t.Helper()
	n := 0
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(f, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		if err != nil {
			t.Fatal(err)
		}
		n += len(routes)
	}
	return n
}
