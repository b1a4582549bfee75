package model

import (
	"net/netip"
	"testing"
)

// TestOuter: both ends of a tunnel have addresses of one family, and both find the same.
func TestOuter(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.168.50.11"), netip.MustParseAddr("fd00::11")
	nodes := map[string]*Node{
		"none": {}, "IPv4": {Addresses: []netip.Addr{v4}}, "IPv6": {Addresses: []netip.Addr{v6}}, "both": {Addresses: []netip.Addr{v4, v6}},
	}
	for name, want := range map[string]netip.Addr{"IPv4": v4, "IPv6": v6, "both": v4} {
		if got := nodes[name].Outer(); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, c := range []struct {
		self, peer string
		want       netip.Addr
	}{
		{"IPv4", "both", v4},
		{"both", "IPv4", v4},
		{"IPv6", "IPv6", v6},
		{"IPv4", "IPv6", netip.Addr{}},
		{"IPv6", "IPv4", netip.Addr{}},
		{"both", "IPv6", netip.Addr{}},
		{"IPv6", "both", netip.Addr{}},
		{"IPv6", "none", netip.Addr{}},
		{"none", "IPv6", v6},
	} {
		if got := nodes[c.self].OuterOf(nodes[c.peer]); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.self, c.peer, got, c.want)
		}
	}
}

// TestWay: both ends decide alike, in each family separately.
func TestWay(t *testing.T) {
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, s := range texts {
			all = append(all, netip.MustParseAddr(s))
		}
		return all
	}
	a := &Node{Name: "a", Addresses: addrs("192.168.50.11", "fd00::11")}
	same := &Node{Name: "b", Addresses: addrs("192.168.50.12", "fd00::12")}
	far := &Node{Name: "c", Addresses: addrs("192.168.60.13", "fd01::13")}
	only4 := &Node{Name: "d", Addresses: addrs("192.168.50.14")}
	subnets := map[*Node][]netip.Prefix{
		a:     {netip.MustParsePrefix("10.0.0.1/8"), netip.MustParsePrefix("192.168.50.11/24"), netip.MustParsePrefix("fd00::11/64")},
		same:  {netip.MustParsePrefix("192.168.50.12/24"), netip.MustParsePrefix("fd00::12/64")},
		far:   {netip.MustParsePrefix("192.168.60.13/24"), netip.MustParsePrefix("fd01::13/64")},
		only4: {netip.MustParsePrefix("192.168.50.14/24")},
	}
	for _, c := range []struct {
		mode   TrafficMode
		peer   *Node
		v4, v6 Way
	}{
		{Encap, same, ByTunnel, ByTunnel},
		{Encap, only4, ByTunnel, ByTunnel},
		{Hybrid, same, ByPeer, ByPeer},
		{Hybrid, far, ByTunnel, ByTunnel},
		{Hybrid, only4, ByPeer, ByTunnel},
		{NoEncap, same, ByPeer, ByPeer},
		{NoEncap, far, ByNetwork, ByNetwork},
		{NoEncap, only4, ByPeer, NoWay},
	} {
		for f, want := range map[Family]Way{IPv4: c.v4, IPv6: c.v6} {
			if got := c.mode.Way(a, c.peer, subnets[a], f); got != want {
				t.Errorf("%s, IPv%s, to %s: %d, want %d", c.mode, f, c.peer.Name, got, want)
			}
			if back := c.mode.Way(c.peer, a, subnets[c.peer], f); back != want {
				t.Errorf("%s, IPv%s, from %s: %d, want %d", c.mode, f, c.peer.Name, back, want)
			}
		}
	}
	// Without the node's own prefix nothing is in its subnet.
	if got := Hybrid.Way(a, same, nil, IPv4); got != ByTunnel {
		t.Errorf("without a prefix: %d", got)
	}
}
