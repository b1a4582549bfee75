package model_test

import (
	"fmt"
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// The identifier of a group of one prefix has the prefix in it, so that a renderer compares addresses and needs no set.
func ExamplePrefixGroup() {
	id := model.PrefixGroup(netip.MustParsePrefix("192.0.2.0/24"))
	prefix, ok := id.Prefix()
	fmt.Println(id.Kind(), prefix, ok)
	// Output:
	// networks 192.0.2.0/24 true
}

// The route manager and the flows ask by which way packets travel to a peer.
func ExampleTrafficMode_Way() {
	node := func(address string) *model.Node {
		return &model.Node{Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	}
	self, subnets := node("192.168.50.11"), []netip.Prefix{netip.MustParsePrefix("192.168.50.11/24")}
	for _, peer := range []string{"192.168.50.12", "192.168.60.12"} {
		way := model.Hybrid.Way(self, node(peer), subnets, model.IPv4)
		fmt.Println(peer, way == model.ByPeer, way == model.ByTunnel)
	}
	// Output:
	// 192.168.50.12 true false
	// 192.168.60.12 false true
}
