package managers

import (
	"slices"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// HostPolicyManager keeps in the host's table what judges packets of pods to their own node,
// for the backend that judges in the switch. The switch passes these packets: it does not
// know the destination that the host gives to packets to a NodePort or a Service. The table
// gets the egress rules of the ordered tiers and the groups that these ask, and nothing else.
type HostPolicyManager struct {
	chains   Chains
	policies *PolicyManager
	groups   *IPSetManager
	own      *OwnNodeManager
	members  func(model.GroupID) []model.Member
	// asked are the groups of each policy, users counts the policies of each group.
	asked map[model.PolicyID][]model.GroupID
	users map[model.GroupID]int
	// reported says that denied packets are reported; denies is set while the chains that
	// deny and reject them are there, changed while they have to be rendered.
	reported, denies, changed bool
}

// NewHostPolicyManager returns a manager for the node of that name. members returns the
// members of a group that are known when a policy begins to ask it; it may know later ones.
func NewHostPolicyManager(node string, renderer *rules.Renderer, chains Chains, sets ipsets.Sets, members func(model.GroupID) []model.Member) *HostPolicyManager {
	return &HostPolicyManager{
		chains: chains, policies: NewPolicyManager(node, renderer, chains), groups: NewIPSetManager(ipsets.WithRanges(sets)),
		own: NewOwnNodeManager(renderer, chains, sets), members: members,
		asked: map[model.PolicyID][]model.GroupID{}, users: map[model.GroupID]int{},
	}
}

// OnUpdate takes updates of policies, groups, endpoints and attachments, this node's
// NodeUpdate, a DenialsUpdate and a LogsUpdate.
func (m *HostPolicyManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.PolicyUpdate:
		m.setPolicy(u.Policy)
	case model.PolicyRemove:
		m.removePolicy(u.ID)
	case model.GroupUpdate:
		if m.users[u.Group.ID] > 0 {
			m.groups.OnUpdate(u)
		}
	case model.DenialsUpdate:
		m.changed = m.changed || m.reported != u.Reported
		m.reported = u.Reported
	case model.NodeUpdate, model.LogsUpdate:
		m.policies.OnUpdate(u)
	default:
		m.own.OnUpdate(u)
	}
}

func (m *HostPolicyManager) setPolicy(p *model.Policy) {
	if p.ID.Tier == model.TierNetworkPolicy || len(p.Egress) == 0 {
		m.removePolicy(p.ID)
		return
	}
	var asked []model.GroupID
	for _, r := range p.Egress {
		asked = slices.Concat(asked, r.Peers, r.NamedPorts)
	}
	slices.Sort(asked)
	asked = slices.Compact(asked)
	for _, id := range asked {
		if m.users[id]++; m.users[id] == 1 {
			m.groups.OnUpdate(model.GroupUpdate{Group: model.Group{ID: id, Kind: id.Kind()}, Added: m.members(id)})
		}
	}
	m.release(p.ID)
	m.asked[p.ID] = asked
	of := model.PolicyUpdate{Policy: &model.Policy{ID: p.ID, Precedence: p.Precedence, Egress: p.Egress}}
	m.policies.OnUpdate(of)
	m.own.OnUpdate(of)
}

func (m *HostPolicyManager) removePolicy(id model.PolicyID) {
	if _, known := m.asked[id]; !known {
		return
	}
	m.release(id)
	delete(m.asked, id)
	m.policies.OnUpdate(model.PolicyRemove{ID: id})
	m.own.OnUpdate(model.PolicyRemove{ID: id})
}

// release removes the groups that only this policy asks.
func (m *HostPolicyManager) release(id model.PolicyID) {
	for _, g := range m.asked[id] {
		if m.users[g]--; m.users[g] == 0 {
			delete(m.users, g)
			m.groups.OnUpdate(model.GroupRemove{ID: g})
		}
	}
}

// CompleteDeferredWork brings chains and sets up to date.
func (m *HostPolicyManager) CompleteDeferredWork() {
	m.policies.CompleteDeferredWork()
	m.own.CompleteDeferredWork()
	switch needed := len(m.asked) > 0; {
	case needed && (m.changed || !m.denies):
		m.chains.UpdateChain(rules.Denied(model.Egress, m.reported))
		m.chains.UpdateChain(m.own.renderer.Rejected(model.Egress, m.reported))
		m.denies = true
	case !needed && m.denies:
		m.chains.RemoveChain(rules.ChainDeniedOut)
		m.chains.RemoveChain(rules.ChainRejectedOut)
		m.denies = false
	}
	m.changed = false
}
