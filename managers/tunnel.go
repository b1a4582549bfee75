package managers

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// TunnelManager keeps the flows to and from each peer node, for every backend.
type TunnelManager struct {
	bridge pipeline.Node
	node   string
	flows  Flows
	ways   ways
	self   *model.Node
	peers  map[string]*model.Node
	// claims lists the peers of an address, by name.
	claims map[netip.Addr][]string
	dirty  dirty[string]
}

// NewTunnelManager returns a manager for the node of that name. bridge has the ports
// of its bridge. Packets to and from peers without a tunnel pass the gateway port as those of the outside.
func NewTunnelManager(node string, mode model.TrafficMode, bridge pipeline.Node, flows Flows) *TunnelManager {
	return &TunnelManager{ways: newWays(mode), bridge: bridge, node: node, flows: flows, peers: map[string]*model.Node{}, claims: map[netip.Addr][]string{}, dirty: dirty[string]{}}
}

// SetMode chooses the pipeline, as ForwardingManager.SetMode.
func (m *TunnelManager) SetMode(mode pipeline.Mode) {
	if m.bridge.Mode != mode {
		m.bridge.Mode = mode
		m.touchAll()
	}
}

func (m *TunnelManager) touchAll() {
	for name := range m.peers {
		m.dirty.add(name)
	}
}

// OnUpdate takes updates of nodes, and an OffloadUpdate.
func (m *TunnelManager) OnUpdate(u model.Update) {
	if m.ways.update(u) {
		m.touchAll()
	}
	switch u := u.(type) {
	case model.OffloadUpdate:
		if m.bridge.Offload != u.Active {
			m.bridge.Offload = u.Active
			m.touchAll()
		}
	case model.NodeUpdate:
		if u.Node.Name == m.node {
			m.self = u.Node
			m.touchAll()
			return
		}
		m.replace(u.Node.Name, u.Node)
	case model.NodeRemove:
		if u.Name != m.node {
			m.replace(u.Name, nil)
		}
	}
}

// replace puts a node in the place of a peer; nil removes the peer.
func (m *TunnelManager) replace(name string, now *model.Node) {
	if old := m.peers[name]; old != nil {
		m.claim(old, false)
	}
	delete(m.peers, name)
	if now != nil {
		m.peers[name] = now
		m.claim(now, true)
	}
	m.dirty.add(name)
}

// claim records whether a peer claims its addresses, and touches all that do. One
// that the tunnel does not lead to has no flows for them.
func (m *TunnelManager) claim(p *model.Node, claims bool) {
	if !p.Address(model.IPv4).IsValid() {
		return
	}
	for _, a := range p.Addresses {
		names := slices.DeleteFunc(m.claims[a], func(name string) bool { return name == p.Name })
		if claims {
			names = append(names, p.Name)
			slices.Sort(names)
		}
		if m.claims[a] = names; len(names) == 0 {
			delete(m.claims, a)
		}
		for _, name := range names {
			m.dirty.add(name)
		}
	}
}

// reached returns a peer with the addresses that lead to it. Two peers may claim one
// (a renamed node, its old object still there): the first by name has it, as it has
// the host's route. Two tunnels for it would be at odds over the same flow, and
// nothing new would be forwarded on this node. That of the tunnel's end leads to the
// same end for both. One that is this node's own comes to it all the same (table 70).
func (m *TunnelManager) reached(p *model.Node) *model.Node {
	end, own := p.Address(model.IPv4), *p
	own.Addresses = slices.DeleteFunc(slices.Clone(p.Addresses), func(a netip.Addr) bool {
		return a != end && len(m.claims[a]) > 0 && m.claims[a][0] != p.Name
	})
	return &own
}

// CompleteDeferredWork sets the flows of the peers that changed.
func (m *TunnelManager) CompleteDeferredWork() {
	if m.self == nil {
		return
	}
	node := withNode(m.bridge, m.self)
	for _, name := range m.dirty.take(strings.Compare) {
		if p := m.peers[name]; p != nil {
			routed := m.ways.of(m.self, p, model.ByPeer, model.ByNetwork, model.ByWireGuard, model.NoWay)
			p = m.reached(p)
			m.flows.SetFlows("peer "+name, func() []openflow.Flow { return pipeline.Peer(node, p, routed...) })
		} else {
			m.flows.RemoveFlows("peer " + name)
		}
	}
}
