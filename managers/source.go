package managers

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// SourceManager keeps the chains that let pods keep their addresses within the
// cluster and, with masquerade, hide them behind their node's on the way out.
type SourceManager struct {
	node       string
	masquerade bool
	renderer   *rules.Renderer
	chains     Chains
	pending    *model.Node
}

// NewSourceManager returns a manager for the node of that name.
func NewSourceManager(node string, masquerade bool, renderer *rules.Renderer, chains Chains) *SourceManager {
	return &SourceManager{node: node, masquerade: masquerade, renderer: renderer, chains: chains}
}

// OnUpdate takes this node's NodeUpdate.
func (m *SourceManager) OnUpdate(u model.Update) {
	if u, ok := u.(model.NodeUpdate); ok && u.Node.Name == m.node {
		m.pending = u.Node
	}
}

// CompleteDeferredWork sets the chains if the node changed.
func (m *SourceManager) CompleteDeferredWork() {
	if m.pending != nil {
		for _, c := range m.renderer.Node().Sources(m.pending, m.masquerade) {
			m.chains.UpdateChain(c)
		}
		m.pending = nil
	}
}
