package hostnet

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

// TestAway: packets with the mark are led back to the gateway port, to the next hop with its own MAC address. Others are not. The
// rules and routes come and go with Away, are repaired, and leave nothing behind.
func TestAway(t *testing.T) {
	gw := inNamespace(t)
	without, with := testState(), testState()
	with.Away, with.AwayMark = true, 0x04000000
	with.AwayMAC, _ = net.ParseMAC("aa:bb:cc:dd:ee:fe")
	towards := func(dst string, mark uint32) (iface int, via string) {
		t.Helper()
		routes, err := netlink.RouteGetWithOptions(net.ParseIP(dst), &netlink.RouteGetOptions{Iif: "flx-gw0", SrcAddr: srcFor(dst, "flx-gw0"), Mark: mark})
		if err != nil || len(routes) == 0 {
			return 0, ""
		}
		return routes[0].LinkIndex, routes[0].Gw.String()
	}
	hops := map[string]string{"203.0.113.9": "169.254.20.21", "8.8.8.8": "169.254.20.21", "2001:db8::9": "fd66:656c:6978::21", "fd99::1": "fd66:656c:6978::21"}
	expect := func(when string, away bool) {
		t.Helper()
		for dst, hop := range hops {
			// An unrelated bit does not matter.
			if iface, via := towards(dst, 0x04000001); (iface == gw.Attrs().Index && via == hop) != away {
				t.Errorf("%s: a marked packet to %s goes to interface %d via %s", when, dst, iface, via)
			}
			if _, via := towards(dst, 0x00000001); via == hop {
				t.Errorf("%s: a packet without the mark to %s goes by the other node", when, dst)
			}
		}
		all, err := netlink.NeighList(gw.Attrs().Index, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, n := range all {
			if n.HardwareAddr.String() == "aa:bb:cc:dd:ee:fe" && n.State&netlink.NUD_PERMANENT != 0 {
				found++
			}
		}
		if want := map[bool]int{true: 2}[away]; found != want {
			t.Errorf("%s: %d next hops, want %d", when, found, want)
		}
	}
	r := NewReconciler()
	apply(t, r, without)
	expect("before", false)
	apply(t, r, with)
	expect("with", true)
	if n := apply(t, NewReconciler(), with); n != 0 {
		t.Errorf("apply of a new process: %d writes", n)
	}
	// Foreign changes.
	for _, f := range model.Families() {
		mark, wrong := with.AwayMark, uint32(0x01000000)
		ours := netlink.NewRule()
		ours.Family, ours.Priority, ours.Table, ours.IifName, ours.Mark, ours.Mask = netlinkFamily(f), DefaultRulePriority+1, DefaultRouteTable+1, "flx-gw0", mark, &mark
		if err := netlink.RuleDel(ours); err != nil {
			t.Fatal(err)
		}
		ours.Mark, ours.Mask = wrong, &wrong
		if err := netlink.RuleAdd(ours); err != nil {
			t.Fatal(err)
		}
	}
	r.Invalidate()
	did, err := r.Apply(context.Background())
	if err != nil || did.Writes != 4 {
		t.Errorf("repair of two rules: %d writes, %v", did.Writes, err)
	}
	expect("repaired", true)
	apply(t, r, without)
	expect("after", false)
	apply(t, r, with)
	if err := Remove("flx-gw0", DefaultRouteTable, DefaultRulePriority); err != nil {
		t.Fatal(err)
	}
	for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := netlink.RuleList(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range rules {
			if rule.Priority/10 == DefaultRulePriority/10 {
				t.Errorf("a rule is left: %v", rule)
			}
		}
	}
	if n := countRoutes(t, Protocol); n != 0 {
		t.Errorf("%d routes are left", n)
	}
	if got := permanent(t, gw); strings.Contains(got, "169.254.20.21") || strings.Contains(got, "fd66") {
		t.Errorf("neighbours after remove: %s", got)
	}
}
