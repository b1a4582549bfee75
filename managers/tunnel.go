package managers

import (
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
	self   *model.Node
	peers  map[string]*model.Node
	dirty  dirty[string]
}

// NewTunnelManager returns a manager for the node of that name, whose bridge
// has the given ports.
func NewTunnelManager(node string, bridge pipeline.Node, flows Flows) *TunnelManager {
	return &TunnelManager{bridge: bridge, node: node, flows: flows, peers: map[string]*model.Node{}, dirty: dirty[string]{}}
}

// OnUpdate takes updates of nodes.
func (m *TunnelManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		if u.Node.Name == m.node {
			m.self = u.Node
			for name := range m.peers {
				m.dirty.add(name)
			}
			return
		}
		m.peers[u.Node.Name] = u.Node
		m.dirty.add(u.Node.Name)
	case model.NodeRemove:
		if u.Name != m.node {
			delete(m.peers, u.Name)
			m.dirty.add(u.Name)
		}
	}
}

// CompleteDeferredWork sets the flows of the peers that changed.
func (m *TunnelManager) CompleteDeferredWork() {
	if m.self == nil {
		return
	}
	node := withNode(m.bridge, m.self)
	for _, name := range m.dirty.take(strings.Compare) {
		if p := m.peers[name]; p != nil {
			m.flows.SetFlows("peer "+name, func() []openflow.Flow { return pipeline.Peer(node, p) })
		} else {
			m.flows.RemoveFlows("peer " + name)
		}
	}
}
