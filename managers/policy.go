package managers

import (
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// PolicyManager keeps one chain for every policy and direction that has rules.
type PolicyManager struct {
	node     string
	renderer *rules.Renderer
	chains   Chains
	families []model.Family
	policies map[model.PolicyID]*model.Policy
	dirty    dirty[model.PolicyID]
	// programmed holds the chains that were set, so that those of a policy
	// that went, or lost its rules of one direction, are removed.
	programmed map[string]bool
}

// NewPolicyManager returns a manager without policies, for the node of that
// name: rules are rendered for the families in which it has a pod prefix.
func NewPolicyManager(node string, renderer *rules.Renderer, chains Chains) *PolicyManager {
	return &PolicyManager{
		node: node, renderer: renderer, chains: chains, policies: map[model.PolicyID]*model.Policy{},
		dirty: dirty[model.PolicyID]{}, programmed: map[string]bool{},
	}
}

// OnUpdate takes PolicyUpdate, PolicyRemove and this node's NodeUpdate.
func (m *PolicyManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.PolicyUpdate:
		m.policies[u.Policy.ID] = u.Policy
		m.dirty.add(u.Policy.ID)
	case model.PolicyRemove:
		delete(m.policies, u.ID)
		m.dirty.add(u.ID)
	case model.NodeUpdate:
		if u.Node.Name == m.node {
			m.setFamilies(u.Node)
		}
	}
}

func (m *PolicyManager) setFamilies(n *model.Node) {
	families := familiesOf(n)
	if slices.Equal(families, m.families) {
		return
	}
	m.families = families
	for id := range m.policies {
		m.dirty.add(id)
	}
}

// CompleteDeferredWork renders the policies that changed.
func (m *PolicyManager) CompleteDeferredWork() {
	for _, id := range m.dirty.take(model.PolicyID.Compare) {
		for _, d := range model.Directions() {
			name := m.renderer.PolicyChain(id, d)
			p := m.policies[id]
			if p != nil && len(p.Rules(d)) > 0 {
				m.chains.UpdateChain(m.renderer.PolicyRules(p, d, m.families))
				m.programmed[name] = true
			} else if m.programmed[name] {
				m.chains.RemoveChain(name)
				delete(m.programmed, name)
			}
		}
	}
}
