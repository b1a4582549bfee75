package policy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// nodePeers has the nodes as peers of rules, and the groups that select nodes.
type nodePeers struct {
	*matcher
	members *membership
	byName  map[string]*nodePeer
	groups  smallmap.Set[*group]
}

// nodePeer is a node as a peer. Its addresses are all IP addresses of its status, of every
// type.
type nodePeer struct {
	labels    *label.Set
	addresses []netip.Addr
}

func newNodePeers(m *matcher, members *membership) *nodePeers {
	return &nodePeers{matcher: m, members: members, byName: map[string]*nodePeer{}}
}

// set creates or replaces a node, or removes it if the object is nil.
func (n *nodePeers) set(name string, object *corev1.Node) {
	old, now := n.byName[name], (*nodePeer)(nil)
	if object != nil {
		now = &nodePeer{labels: n.labelSets.Intern(object.Labels)}
		n.labelSets.Hold(now.labels)
		for _, a := range object.Status.Addresses {
			// A node writes its own status. The kernel would refuse a set with an address that
			// no packet can have.
			if ip, err := netip.ParseAddr(a.Address); err == nil && podAddress(ip) {
				now.addresses = append(now.addresses, ip.Unmap())
			}
		}
	}
	// New addresses first, so that an address in both is no change.
	for g := range n.groups.All() {
		n.work.Visits++
		n.count(g, now, 1)
		n.count(g, old, -1)
	}
	if old != nil {
		n.labelSets.Release(old.labels)
	}
	if now == nil {
		delete(n.byName, name)
		return
	}
	n.byName[name] = now
}

// count counts the addresses of a node in a group that selects it.
func (n *nodePeers) count(g *group, peer *nodePeer, count int32) {
	if peer == nil || !n.matches(g.nodes, peer.labels) {
		return
	}
	for _, a := range peer.addresses {
		n.members.countMember(g, model.AddressMember(a), count)
	}
}

// fill fills a new group of nodes.
func (n *nodePeers) fill(g *group, nodes *label.Selector) {
	g.nodes = n.selectors.Hold(nodes)
	n.groups.Add(g)
	for _, peer := range n.byName {
		n.work.Visits++
		n.count(g, peer, 1)
	}
}

func (n *nodePeers) drop(g *group) {
	n.groups.Remove(g)
	n.selectors.Release(g.nodes)
}
