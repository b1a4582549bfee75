package hostnet

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// TestAddressesOfOthers: this node takes no address that a neighbour answers for, and no next hop of a route, of either family. It takes it
// when it has become free, and does not ask again for an address that it has had.
func TestAddressesOfOthers(t *testing.T) {
	inNamespace(t)
	run := func(commands ...string) {
		t.Helper()
		for _, command := range commands {
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
		}
	}
	// The neighbour is in a namespace of its own: a host answers for all its interfaces.
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	neighbour, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer neighbour.Close()
	in := func(ns netns.NsHandle, commands ...string) {
		t.Helper()
		if err := netns.Set(ns); err != nil {
			t.Fatal(err)
		}
		run(commands...)
		if err := netns.Set(here); err != nil {
			t.Fatal(err)
		}
	}
	if err := netns.Set(here); err != nil {
		t.Fatal(err)
	}
	peer, err := netlink.LinkByName("uplink0-p")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetNsFd(peer, int(neighbour)); err != nil {
		t.Fatal(err)
	}
	in(neighbour, "ip link set uplink0-p up", "ip address add 192.168.50.1/24 dev uplink0-p", "ip address add 192.168.50.77/24 dev uplink0-p",
		"ip address add fd00:10::c0a8:324d/120 dev uplink0-p nodad")
	run("ip route add 198.51.100.0/24 nexthop via 192.168.50.8 nexthop via 192.168.50.9", "ip route add default via 192.168.50.10 table 99", "ip -6 route add default via fd00:10::c0a8:320a dev uplink0")
	node := []netip.Addr{netip.MustParseAddr("192.168.50.11"), netip.MustParseAddr("fd00:10::c0a8:320b")}
	parse := func(all ...string) (out []netip.Addr) {
		for _, a := range all {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	has := func(a netip.Addr) bool {
		out, err := exec.Command("ip", "-o", "address", "show", "dev", "uplink0").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.Contains(string(out), " "+a.String()+"/")
	}
	others := parse("192.168.50.1", "192.168.50.77", "fd00:10::c0a8:324d", "192.168.50.9", "192.168.50.10", "fd00:10::c0a8:320a")
	free := parse("192.168.50.100", "fd00:10::c0a8:3264")
	a := &Addresses{}
	writes, err := a.Apply(Wanted{Always: append(others, free...), Node: node})
	if writes != len(free) || err == nil {
		t.Errorf("%d writes, %v", writes, err)
	}
	refused := a.Refused()
	for _, o := range others {
		if has(o) || a.Has(o) || refused[o] == nil || !strings.Contains(err.Error(), refused[o].Error()) {
			t.Errorf("%s is at this node: %v, refused: %v", o, has(o), refused[o])
		}
		if err := (&Addresses{}).Probe(o); err != nil {
			t.Errorf("%s before the first Apply: %v", o, err)
		}
		if err := a.Probe(o); err == nil {
			t.Errorf("an election takes %s", o)
		}
	}
	for _, f := range free {
		if err := a.Probe(f); !has(f) || err != nil {
			t.Errorf("%s is not at this node: %v", f, err)
		}
	}
	if why := refused[others[1]]; why == nil || !strings.Contains(why.Error(), "another host, with the MAC address") {
		t.Errorf("a neighbour: %v", why)
	}
	if why := refused[others[3]]; why == nil || !strings.Contains(why.Error(), "is the next hop of a route") {
		t.Errorf("a next hop: %v", why)
	}
	in(neighbour, "ip address del 192.168.50.77/24 dev uplink0-p", "ip address del fd00:10::c0a8:324d/120 dev uplink0-p")
	free = append(free, others[1], others[2])
	writes, err = a.Apply(Wanted{Always: free, Node: node})
	if writes != 2 || err != nil {
		t.Errorf("free: %d writes, %v", writes, err)
	}
	// Another host takes an address too. This node had it first, and repairs what other programs do to it.
	in(neighbour, "ip address add 192.168.50.77/24 dev uplink0-p")
	run("ip address del 192.168.50.77/32 dev uplink0")
	began := time.Now()
	if writes, err := a.Apply(Wanted{Always: free, Node: node}); writes != 1 || err != nil {
		t.Errorf("repair: %d writes, %v after %s", writes, err, time.Since(began))
	}
}
