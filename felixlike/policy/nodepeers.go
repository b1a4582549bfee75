package policy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// nodePeers keeps what rules can select of nodes, and the groups that do.
type nodePeers struct {
	byName map[string]*nodePeer
	groups smallmap.Set[*group]
}

// nodePeer is a node as a peer. It has every address of its status, of whatever type;
// names of hosts are no addresses.
type nodePeer struct {
	labels    *label.Set
	addresses []netip.Addr
}

// setNodePeer creates or replaces a node as a peer, or removes it if the object is nil.
func (e *Engine) setNodePeer(name string, object *corev1.Node) {
	old, now := e.nodePeers.byName[name], (*nodePeer)(nil)
	if object != nil {
		now = &nodePeer{labels: e.labelSets.Intern(object.Labels)}
		e.labelSets.Hold(now.labels)
		for _, a := range object.Status.Addresses {
			// A node writes its own status. An address that no packet can have would make
			// a kernel refuse the set.
			if ip, err := netip.ParseAddr(a.Address); err == nil && podAddress(ip) {
				now.addresses = append(now.addresses, ip.Unmap())
			}
		}
	}
	// First the new addresses: those that stay are no changes.
	for g := range e.nodePeers.groups.All() {
		e.work.Visits++
		e.countNode(g, now, 1)
		e.countNode(g, old, -1)
	}
	if old != nil {
		e.labelSets.Release(old.labels)
	}
	if now == nil {
		delete(e.nodePeers.byName, name)
		return
	}
	e.nodePeers.byName[name] = now
}

// countNode counts the addresses of a node into a group that selects it.
func (e *Engine) countNode(g *group, n *nodePeer, count int32) {
	if n == nil || !e.matches(g.nodes, n.labels) {
		return
	}
	for _, a := range n.addresses {
		e.countMember(g, model.AddressMember(a), count)
	}
}

// fillNodes fills a new group over nodes.
func (e *Engine) fillNodes(g *group, nodes *label.Selector) {
	g.nodes = e.selectors.Hold(nodes)
	e.nodePeers.groups.Add(g)
	for _, n := range e.nodePeers.byName {
		e.work.Visits++
		e.countNode(g, n, 1)
	}
}

func (e *Engine) dropNodes(g *group) {
	e.nodePeers.groups.Remove(g)
	e.selectors.Release(g.nodes)
}
