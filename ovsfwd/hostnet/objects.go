package hostnet

import (
	"bytes"
	"net"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// objects are the objects of a State, by their keys in the kernel. They never change.
type objects struct {
	State
	inOrder []route
	// byID are the routes by their identity.
	byID map[route]route
	// macs are the MAC addresses of the permanent neighbours.
	macs map[netip.Addr]string
}

func newObjects(s State) *objects {
	o := &objects{State: s, macs: s.neighbours(), byID: map[route]route{}}
	o.inOrder, _ = s.routes()
	for _, r := range o.inOrder {
		o.byID[r.identity()] = r
	}
	return o
}

// hasAddress reports whether the desired state has this address of the gateway port.
func (o *objects) hasAddress(a netip.Prefix) bool {
	return slices.Contains(o.portAddresses(), a)
}

// hasRoute reports whether the desired state has exactly this route.
func (o *objects) hasRoute(r route) bool {
	now, ok := o.byID[r.identity()]
	return ok && now == r
}

// hasNeighbour reports whether the desired state has this neighbour.
func (o *objects) hasNeighbour(a netip.Addr, mac string) bool {
	now, ok := o.macs[a]
	return ok && now == mac
}

// hasRule reports whether the desired state has this policy rule in a family.
func (o *objects) hasRule(f model.Family, r policyRule) bool {
	return slices.Contains(o.policyRules(f), r)
}

// ownsRule reports whether no other program has rules with this priority and table.
func (o *objects) ownsRule(priority, table int) bool {
	i := priority - o.RulePriority
	return (i == 0 || i == 1) && table == o.RouteTable+i
}

// claims reports whether a permanent neighbour of the gateway port can only be ours: it
// is a pod's, or has the virtual MAC.
func (o *objects) claims(a netip.Addr, mac net.HardwareAddr) bool {
	return o.ownPrefix(a) || bytes.Equal(mac, o.VirtualMAC) || bytes.Equal(mac, o.AwayMAC)
}

// isNode reports whether an address belongs to this node.
func (o *objects) isNode(a netip.Addr) bool { return slices.Contains(o.NodeAddresses, a) }
