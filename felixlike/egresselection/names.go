package egresselection

import (
	"net/netip"
	"strings"

	"github.com/felixlike/felixlike/felixlike/leases"
)

// The label of the Leases of elections.
const (
	label        = "felixlike.io/egress"
	labelAddress = "address"
	labelNode    = "node"
)

// Label selectors of the Leases of addresses and of nodes.
const (
	addressLeases = label + "=" + labelAddress
	nodeLeases    = label + "=" + labelNode
)

const (
	addressPrefix = "egress-"
	nodePrefix    = "egress-node-"
)

// addressLease returns a new Lease of an address. A name takes no colon.
func addressLease(a netip.Addr) *leases.Lease {
	return &leases.Lease{
		Name:   addressPrefix + strings.ReplaceAll(a.StringExpanded(), ":", "-"),
		Labels: map[string]string{label: labelAddress},
	}
}

// addressOf returns the address of a Lease, the zero Addr if it has none.
func addressOf(l *leases.Lease) netip.Addr {
	text := strings.TrimPrefix(l.Name, addressPrefix)
	if !strings.Contains(text, ".") {
		text = strings.ReplaceAll(text, "-", ":")
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

// nodeLease returns a new Lease of a node.
func nodeLease(name string) *leases.Lease {
	return &leases.Lease{Name: nodePrefix + name, Labels: map[string]string{label: labelNode}}
}
