package election

import (
	"maps"
	"net/netip"
	"strings"

	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/model"
)

// The label of the Leases of elections.
const (
	label        = "felixlike.io/egress"
	labelAddress = "address"
	labelNode    = "node"
	// labelOwner has the UID of the Egress that the address has been allocated to from a pool. annotationPool has the name of that pool.
	labelOwner     = "felixlike.io/egress-owner"
	annotationPool = "felixlike.io/egress-pool"
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

// allocate sets the Egress that the address of a Lease belongs to.
func allocate(l *leases.Lease, uid, pool string) {
	l.Labels, l.Annotations = maps.Clone(l.Labels), maps.Clone(l.Annotations)
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Labels[labelOwner], l.Annotations[annotationPool] = uid, pool
}

// contentOf returns what the Lease of an address says.
func contentOf(l *leases.Lease) model.EgressLease {
	return model.EgressLease{Holder: l.Holder(), Owner: l.Labels[labelOwner], Pool: l.Annotations[annotationPool], Created: l.Created.Unix()}
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
