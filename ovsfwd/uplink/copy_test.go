package uplink

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/test/eventually"
)

// own is the node's own address in tests.
var own = netip.AddrFrom4([4]byte{192, 168, 77, 100})

func (in In) moves(t *testing.T, want Moved) {
	t.Helper()
	if moved, err := in.Move("up0", "phy0", own); err != nil || moved != want {
		t.Fatalf("moved %+v, %v; want %+v", moved, err, want)
	}
}

// TestLeases: no DHCP client renews a copy, so a copy does not expire with the uplink's
// address. On the way back the uplink's address keeps its own lifetime.
func TestLeases(t *testing.T) {
	u := inNamespace(t)
	ip(t, "addr change 192.168.77.100/24 dev up0 valid_lft 2 preferred_lft 1")
	ip(t, "addr change fd77::100/64 dev up0 valid_lft 100 preferred_lft 50")
	ip(t, "link set phy0 up")
	// As one that was copied with its lifetime.
	ip(t, "addr add fd77::100/64 dev phy0 nodad valid_lft 100 preferred_lft 50")
	u.moves(t, Moved{Addresses: 2, Routes: 3})
	checkMoved(t)
	for _, family := range []string{"-4", "-6"} {
		if out := ip(t, family+" addr show dev phy0 scope global"); strings.Count(out, "valid_lft forever preferred_lft forever") != 1 {
			t.Errorf("the copy has a lifetime:\n%s", out)
		}
	}
	u.moves(t, Moved{})
	eventually.True(t, "the lease ends", func() bool { return !strings.Contains(ip(t, "addr show dev up0"), "192.168.77.100") })
	u.moves(t, Moved{})
	for _, want := range []struct{ command, text string }{
		{"-4 addr show dev phy0", "192.168.77.100/24"},
		{"-4 route show default", "via 192.168.77.1 dev phy0"},
	} {
		if out := ip(t, want.command); !strings.Contains(out, want.text) {
			t.Errorf("after the lease: ip %s: no %q in\n%s", want.command, want.text, out)
		}
	}
	if _, err := u.Restore("phy0"); err != nil {
		t.Fatal(err)
	}
	if out := ip(t, "-6 addr show dev up0 scope global"); strings.Contains(out, "forever") {
		t.Errorf("whoever made the uplink's address cannot let it expire:\n%s", out)
	}
	if out := ip(t, "-4 addr show dev up0"); !strings.Contains(out, "192.168.77.100/24") {
		t.Errorf("the node's only address is not given back:\n%s", out)
	}
}

// TestAddressesThatWander: an address that another node took over is removed from the bridge
// too, and does not come back to the uplink. An address that another program added to the
// bridge stays.
func TestAddressesThatWander(t *testing.T) {
	u := inNamespace(t)
	wander := []string{"192.168.77.50/24", "192.168.77.51/32", "fd77::50/128"}
	for _, a := range wander {
		ip(t, "addr add "+a+" dev up0 nodad")
	}
	// A deprecated address: no new connections use it.
	ip(t, "addr change fd77::50/128 dev up0 preferred_lft 0")
	ip(t, "link set phy0 up")
	ip(t, "addr add 192.168.77.60/32 dev phy0")
	u.moves(t, Moved{Addresses: 5, Routes: 3})
	if out := ip(t, "-6 addr show dev phy0 to fd77::50"); !strings.Contains(out, "deprecated") {
		t.Errorf("not deprecated on the bridge:\n%s", out)
	}
	u.moves(t, Moved{})
	for _, a := range wander {
		ip(t, "addr del "+a+" dev up0")
	}
	// Without an address to go by, nothing is removed.
	if moved, err := u.Move("up0", "phy0", netip.Addr{}); err != nil || moved != (Moved{}) {
		t.Fatal(moved, err)
	}
	// Nor given back.
	if _, err := u.Restore("phy0"); err != nil {
		t.Fatal(err)
	}
	for _, a := range wander {
		if out := ip(t, "addr show dev up0"); strings.Contains(out, "inet "+a) || strings.Contains(out, "inet6 "+a) {
			t.Errorf("%s is back:\n%s", a, out)
		}
	}
	if moved, err := u.Move("up0", "phy0", own); err != nil || moved.Forgotten != 3 {
		t.Fatalf("moved %+v, %v", moved, err)
	}
	checkMoved(t)
	out := ip(t, "addr show dev phy0")
	for _, a := range wander {
		if strings.Contains(out, "inet "+a) || strings.Contains(out, "inet6 "+a) {
			t.Errorf("%s stays:\n%s", a, out)
		}
	}
	if !strings.Contains(out, "192.168.77.60/32") {
		t.Errorf("another program's address is gone:\n%s", out)
	}
}

// TestOthersOfTheTunnelsPrefix: with tunnels from an IPv6 address, the bridge gets the other addresses of its prefix
// without the prefix, also if an earlier agent gave them with it. The uplink keeps them as they were.
func TestOthersOfTheTunnelsPrefix(t *testing.T) {
	u := inNamespace(t)
	own6 := netip.MustParseAddr("fd77::100")
	ip(t, "addr add fd77::50/64 dev up0 nodad")
	u.moves(t, Moved{Addresses: 3, Routes: 3}) // as with tunnels over IPv4
	converged := func() {
		t.Helper()
		for range 5 {
			if moved, err := u.Move("up0", "phy0", own6); err != nil {
				t.Fatal(err)
			} else if moved == (Moved{}) {
				return
			}
		}
		t.Fatal("each move changes something")
	}
	onBridge := func() string { return ip(t, "-6 addr show dev phy0 scope global") }
	converged()
	checkMoved(t)
	if out := onBridge(); !strings.Contains(out, "fd77::50/128 scope global nodad deprecated") || strings.Contains(out, "fd77::50/64") {
		t.Errorf("the other address has the prefix on the bridge:\n%s", out)
	}
	if _, err := u.Restore("phy0"); err != nil {
		t.Fatal(err)
	}
	if out := ip(t, "-6 addr show dev up0 to fd77::50"); !strings.Contains(out, "fd77::50/64") || strings.Contains(out, "deprecated") {
		t.Errorf("changed on the uplink:\n%s", out)
	}
	converged()
	ip(t, "addr del fd77::50/64 dev up0")
	converged()
	if out := onBridge(); strings.Contains(out, "fd77::50") || !strings.Contains(out, "fd77::100/64") {
		t.Errorf("the bridge has\n%s", out)
	}
}

// TestLastAddressesStay: an uplink without the node's own address, or without any of
// a family, takes nothing from the bridge.
func TestLastAddressesStay(t *testing.T) {
	u := inNamespace(t)
	ip(t, "addr add 192.168.77.50/32 dev up0")
	u.moves(t, Moved{Addresses: 3, Routes: 3})
	ip(t, "addr del 192.168.77.100/24 dev up0")
	ip(t, "addr del fd77::100/64 dev up0")
	u.moves(t, Moved{})
	checkMoved(t)
	if back, err := u.Restore("phy0"); err != nil || back.Addresses != 2 {
		t.Fatal(back, err)
	}
	if out := ip(t, "addr show dev up0"); !strings.Contains(out, "192.168.77.100/24") || !strings.Contains(out, "fd77::100/64") {
		t.Errorf("not given back:\n%s", out)
	}
}

// TestFirstOfAPrefix removes the address that others of its prefix are secondary to.
func TestFirstOfAPrefix(t *testing.T) {
	u := inNamespace(t)
	ip(t, "addr del 192.168.77.100/24 dev up0")
	ip(t, "addr add 192.168.77.50/24 dev up0")
	ip(t, "addr add 192.168.77.100/24 dev up0")
	ip(t, "route add default via 192.168.77.1 dev up0")
	ip(t, "route add 10.99.0.0/16 via 192.168.77.2 dev up0 src 192.168.77.100 metric 50")
	u.moves(t, Moved{Addresses: 3, Routes: 3})
	link, err := netlink.LinkByName("up0")
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := addresses(link, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if address(a) != own {
			ip(t, "addr del "+a.IPNet.String()+" dev up0")
		}
	}
	ip(t, "addr replace 192.168.77.100/24 dev up0 noprefixroute")
	u.moves(t, Moved{Forgotten: 1})
	checkMoved(t)
}
