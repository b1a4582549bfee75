package managers

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/managers/grants"
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
	// grants take the place of chains; nil if there are none.
	grants *grants.Grants
}

// NewPolicyManager returns a manager without policies, for the node of that
// name: rules are rendered for the families in which it has a pod prefix.
func NewPolicyManager(node string, renderer *rules.Renderer, chains Chains) *PolicyManager {
	return &PolicyManager{
		node: node, renderer: renderer, chains: chains, policies: map[model.PolicyID]*model.Policy{},
		dirty: dirty[model.PolicyID]{},
	}
}

// UseGrants leaves policies to grants, as far as these have the lists of policies of all pods. It must be called before the
// first update.
func (m *PolicyManager) UseGrants(g *grants.Grants) { m.grants = g }

// OnUpdate takes PolicyUpdate, PolicyRemove, LogsUpdate and this node's NodeUpdate.
func (m *PolicyManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.PolicyUpdate:
		m.policies[u.Policy.ID] = u.Policy
		m.dirty.add(u.Policy.ID)
	case model.PolicyRemove:
		delete(m.policies, u.ID)
		m.dirty.add(u.ID)
	case model.LogsUpdate:
		m.renderer.SetLogs(u.Reported)
		for id, p := range m.policies {
			if p.Logs() {
				m.dirty.add(id)
			}
		}
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

// CompleteDeferredWork renders the policies that changed. A chain goes with its
// policy, with the policy's last rule of the direction, or with the last list that is not in grants.
func (m *PolicyManager) CompleteDeferredWork() {
	claims, render := m.renderer.Policies(), map[rules.PolicySide]bool{}
	for _, side := range m.grants.ChangedSides() {
		m.dirty.add(side.ID)
	}
	for _, id := range m.dirty.take(model.PolicyID.Compare) {
		for _, d := range model.Directions() {
			side, name := rules.PolicySide{ID: id, Direction: d}, m.renderer.PolicyChain(id, d)
			if p := m.policies[id]; p != nil && len(p.Rules(d)) > 0 && m.grants.NeedsChain(side) {
				claims.Want(name, side)
				render[side] = true
			} else if claims.Release(name, side) {
				m.chains.RemoveChain(name)
			}
		}
	}
	for _, side := range claims.Settle() {
		render[side] = true
	}
	for _, side := range slices.SortedFunc(maps.Keys(render), rules.PolicySide.Compare) {
		if _, refused := claims.Refused(side); !refused {
			m.chains.UpdateChain(m.renderer.PolicyRules(m.policies[side.ID], side.Direction, m.families))
		}
	}
}
