package managers

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// TunnelPortManager keeps the table that closes the tunnel port, or WireGuard's, to strangers (rules.Tunnel), for every backend. Its
// sets have all addresses of all nodes.
type TunnelPortManager struct {
	node  string
	nodes map[string]*model.Node
	ends  atomic.Pointer[Ends]
	// first is the peer of ends. moved is set if ends may be outdated.
	first    string
	moved    bool
	networks podNetworks
	programs func()
	// known is set after the first node. Before, the table stays as an earlier agent left it.
	known bool
}

// Ends are the addresses of both ends of a tunnel.
type Ends struct{ Peer, Own netip.Addr }

// EndsOf returns those of the tunnel from the first peer by name to the node of that name.
func EndsOf(node string, all []*model.Node) Ends {
	at := slices.IndexFunc(all, func(n *model.Node) bool { return n.Name == node })
	if at < 0 {
		return Ends{}
	}
	_, e := endsOf(all[at], slices.Values(all))
	return e
}

// endsOf also returns the name of the peer.
func endsOf(self *model.Node, all iter.Seq[*model.Node]) (first string, e Ends) {
	for n := range all {
		if a := self.OuterOf(n); n.Name != self.Name && a.IsValid() && (first == "" || n.Name < first) {
			first, e.Peer = n.Name, a
		}
	}
	e.Own = self.Outer()
	return first, e
}

// Ends returns those of the tunnel to the first peer by name, as far as they are known. It may be called from any
// goroutine.
func (m *TunnelPortManager) Ends() Ends {
	if e := m.ends.Load(); e != nil {
		return *e
	}
	return Ends{}
}

// NewTunnelPortManager returns a manager for the tunnel's UDP port, on the node of that name.
func NewTunnelPortManager(node string, port uint16, chains Chains, sets ipsets.Sets) *TunnelPortManager {
	return &TunnelPortManager{
		node: node, nodes: map[string]*model.Node{}, networks: newNodeAddresses(sets),
		programs: func() {
			for _, c := range rules.TunnelChains(port) {
				chains.UpdateChain(c)
			}
		},
	}
}

// newNodeAddresses returns the sets of all addresses of nodes.
func newNodeAddresses(sets ipsets.Sets) podNetworks {
	for _, f := range model.Families() {
		sets.CreateSet(rules.NodesOf(f))
	}
	return podNetworks{
		sets: sets, set: rules.NodesSet, members: map[string][]model.Member{}, holders: map[model.Member]int{},
		prefixes: func(n *model.Node) []netip.Prefix {
			var all []netip.Prefix
			for _, a := range n.Addresses {
				if p := model.AddressMember(a.Unmap()).Prefix; !slices.Contains(all, p) {
					all = append(all, p)
				}
			}
			return all
		},
	}
}

// Known reports whether the manager has seen a node. It is called where CompleteDeferredWork is.
func (m *TunnelPortManager) Known() bool { return m.known }

// OnUpdate takes updates of nodes.
func (m *TunnelPortManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		m.networks.update(u.Node.Name, u.Node)
		m.nodes[u.Node.Name] = u.Node
		m.known = true
		m.move(u.Node.Name)
	case model.NodeRemove:
		m.networks.update(u.Name, nil)
		delete(m.nodes, u.Name)
		m.move(u.Name)
	}
}

// move notes a change of a node: one behind the first peer does not change the ends.
func (m *TunnelPortManager) move(name string) {
	m.moved = m.moved || name == m.node || m.first == "" || name <= m.first
}

// CompleteDeferredWork brings the chains up to date. The sets already are.
func (m *TunnelPortManager) CompleteDeferredWork() {
	if m.moved {
		m.moved = false
		var ends Ends
		m.first = ""
		if self := m.nodes[m.node]; self != nil {
			m.first, ends = endsOf(self, maps.Values(m.nodes))
		}
		m.ends.Store(&ends)
	}
	if m.programs != nil && m.known {
		m.programs()
		m.programs = nil
	}
}
