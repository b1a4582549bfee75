package managers

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// MasqManager keeps the chain that hides pods behind their node's address on
// the way out of the cluster.
type MasqManager struct {
	node     string
	renderer *rules.Renderer
	chains   Chains
	pending  *model.Node
}

// NewMasqManager returns a manager for the node of that name.
func NewMasqManager(node string, renderer *rules.Renderer, chains Chains) *MasqManager {
	return &MasqManager{node: node, renderer: renderer, chains: chains}
}

// OnUpdate takes this node's NodeUpdate.
func (m *MasqManager) OnUpdate(u model.Update) {
	if u, ok := u.(model.NodeUpdate); ok && u.Node.Name == m.node {
		m.pending = u.Node
	}
}

// CompleteDeferredWork sets the chain if the node changed.
func (m *MasqManager) CompleteDeferredWork() {
	if m.pending != nil {
		m.chains.UpdateChain(m.renderer.Masquerade(m.pending))
		m.pending = nil
	}
}
