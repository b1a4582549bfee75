package managers

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// HostsManager keeps the table that judges packets to and from the node itself (rules.Hosts), for every backend. It programs the
// policies that the node is to have, or in their place the confirmed ones if the model.HostState says that the node did not work with them.
type HostsManager struct {
	renderer *rules.Renderer
	chains   Chains
	sets     ipsets.Sets
	groups   *IPSetManager
	failsafe model.Failsafe

	wanted   *model.HostPolicies
	state    model.HostState
	reported bool
	// members are those of the groups that wanted or confirmed policies ask. A group that nothing else asks any more keeps its last ones;
	// gone has these.
	members map[model.GroupID]*hostGroup
	gone    map[model.GroupID]bool
	// pods are the addresses of the pods of this node, by interface. networks are the pod prefixes of all nodes.
	pods     map[string][]netip.Addr
	networks map[string][]netip.Prefix
	// rendered are the chains of the last render, asked the groups with sets, podSets the members of the sets of pods and of pod prefixes, by name.
	rendered map[string]bool
	asked    map[model.GroupID]bool
	podSets  map[string]map[model.Member]bool
	dirty    bool
}

type hostGroup struct {
	model.Group
	members map[model.Member]bool
}

// NewHostsManager returns a manager without policies.
func NewHostsManager(renderer *rules.Renderer, chains Chains, sets ipsets.Sets, failsafe model.Failsafe) *HostsManager {
	return &HostsManager{
		renderer: renderer.OfHosts(), chains: chains, sets: sets, groups: NewIPSetManager(ipsets.WithRanges(sets)), failsafe: failsafe,
		members: map[model.GroupID]*hostGroup{}, gone: map[model.GroupID]bool{}, pods: map[string][]netip.Addr{}, networks: map[string][]netip.Prefix{},
		rendered: map[string]bool{}, asked: map[model.GroupID]bool{}, podSets: map[string]map[model.Member]bool{},
	}
}

// InForce returns the policies to program with the members that their groups have now, nil for no table.
func (m *HostsManager) InForce() *model.HostPolicies {
	p := m.chosen()
	if p.Empty() {
		return nil
	}
	now := *p
	now.Groups = nil
	for _, g := range p.Groups {
		if has := m.members[g.ID]; has != nil {
			members := slices.SortedFunc(maps.Keys(has.members), model.Member.Compare)
			now.Groups = append(now.Groups, model.HostGroup{Group: has.Group, Members: members})
		}
	}
	return &now
}

func (m *HostsManager) chosen() *model.HostPolicies {
	switch {
	case m.state.Off:
		return nil
	case !m.wanted.Empty() && m.wanted.Fingerprint() == m.state.Withdrawn:
		return m.state.Confirmed
	}
	return m.wanted
}

// Wanted returns the policies that the node is to have, nil if there are none.
func (m *HostsManager) Wanted() *model.HostPolicies {
	if m.wanted.Empty() {
		return nil
	}
	return m.wanted
}

// OnUpdate takes updates of the node's policies and of their state, of groups, attachments and nodes, and a DenialsUpdate and a LogsUpdate.
func (m *HostsManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.HostPoliciesUpdate:
		m.wanted, m.dirty = u.Policies, true
		for _, g := range u.Policies.Groups {
			delete(m.gone, g.ID)
			m.setMembers(g.Group, g.Members)
		}
		m.forget()
	case model.HostStateUpdate:
		m.state, m.dirty = u.State, true
		if u.State.Confirmed != nil {
			for _, g := range u.State.Confirmed.Groups {
				if m.members[g.ID] == nil {
					m.setMembers(g.Group, g.Members)
				}
			}
		}
		m.forget()
	case model.GroupUpdate:
		m.changeGroup(u)
	case model.GroupRemove:
		if m.members[u.ID] != nil {
			m.gone[u.ID] = true
		}
	case model.AttachmentUpdate:
		m.pods[u.Attachment.Interface], m.dirty = u.Attachment.Addresses, true
	case model.AttachmentRemove:
		if _, known := m.pods[u.Interface]; known {
			delete(m.pods, u.Interface)
			m.dirty = true
		}
	case model.NodeUpdate:
		m.dirty = m.dirty || !slices.Equal(m.networks[u.Node.Name], u.Node.PodCIDRs)
		m.networks[u.Node.Name] = u.Node.PodCIDRs
	case model.NodeRemove:
		delete(m.networks, u.Name)
		m.dirty = true
	case model.DenialsUpdate:
		m.dirty = m.dirty || m.reported != u.Reported
		m.reported = u.Reported
	case model.LogsUpdate:
		m.renderer.SetLogs(u.Reported)
		m.dirty = true
	}
}

// changeGroup changes the members of a group that the node's policies ask.
func (m *HostsManager) changeGroup(u model.GroupUpdate) {
	has := m.members[u.Group.ID]
	switch {
	case has == nil:
	case m.gone[u.Group.ID]: // it begins again, with all its members
		delete(m.gone, u.Group.ID)
		m.setMembers(u.Group, u.Added)
	default:
		m.changeMembers(has, u.Added, u.Removed)
	}
}

// setMembers sets all members of a group.
func (m *HostsManager) setMembers(g model.Group, wanted []model.Member) {
	has := m.members[g.ID]
	if has == nil {
		has = &hostGroup{Group: g, members: map[model.Member]bool{}}
		m.members[g.ID] = has
	}
	keep := map[model.Member]bool{}
	for _, member := range wanted {
		keep[member] = true
	}
	var removed []model.Member
	for member := range has.members {
		if !keep[member] {
			removed = append(removed, member)
		}
	}
	slices.SortFunc(removed, model.Member.Compare)
	m.changeMembers(has, wanted, removed)
}

func (m *HostsManager) changeMembers(g *hostGroup, added, removed []model.Member) {
	u := model.GroupUpdate{Group: g.Group}
	for _, member := range added {
		if !g.members[member] {
			g.members[member] = true
			u.Added = append(u.Added, member)
		}
	}
	for _, member := range removed {
		if g.members[member] {
			delete(g.members, member)
			u.Removed = append(u.Removed, member)
		}
	}
	if m.asked[g.ID] && len(u.Added)+len(u.Removed) > 0 {
		m.groups.OnUpdate(u)
	}
}

// forget forgets the members of groups that neither wanted nor confirmed policies ask. Their sets go with the next render.
func (m *HostsManager) forget() {
	keep := map[model.GroupID]bool{}
	for _, p := range []*model.HostPolicies{m.wanted, m.state.Confirmed} {
		if p != nil {
			for _, g := range p.Groups {
				keep[g.ID] = true
			}
		}
	}
	for id := range m.members {
		if !keep[id] && !m.asked[id] {
			delete(m.members, id)
			delete(m.gone, id)
		}
	}
}

// CompleteDeferredWork brings chains and sets up to date.
func (m *HostsManager) CompleteDeferredWork() {
	if !m.dirty {
		return
	}
	m.dirty = false
	p, rendered, asked := m.chosen(), map[string]bool{}, map[model.GroupID]bool{}
	if !p.Empty() {
		for _, g := range p.Groups {
			if asked[g.ID] = true; !m.asked[g.ID] {
				has := m.members[g.ID]
				m.groups.OnUpdate(model.GroupUpdate{Group: g.Group, Added: slices.SortedFunc(maps.Keys(has.members), model.Member.Compare)})
			}
		}
	}
	m.setPods(!p.Empty(), !p.Empty() && !p.PreDNAT.Empty())
	if !p.Empty() {
		for _, c := range rules.Hosts(m.renderer, p, m.failsafe, m.reported) {
			rendered[c.Name] = true
			m.chains.UpdateChain(c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.rendered)) {
		if !rendered[name] {
			m.chains.RemoveChain(name)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.asked)) {
		if !asked[id] {
			m.groups.OnUpdate(model.GroupRemove{ID: id})
		}
	}
	m.rendered, m.asked = rendered, asked
	m.forget()
}

// setPods fills the sets of the pods of this node, and of the pod prefixes of all nodes, or removes them.
func (m *HostsManager) setPods(ofNode, ofCluster bool) {
	for _, f := range model.Families() {
		var own, all []model.Member
		for _, addresses := range m.pods {
			for _, a := range addresses {
				own = append(own, model.AddressMember(a))
			}
		}
		for _, prefixes := range m.networks {
			for _, p := range prefixes {
				all = append(all, model.Member{Prefix: p})
			}
		}
		m.setMembersOf(rules.OwnPodsSet(f), ofNode, own)
		m.setMembersOf(ipsets.Set{Name: rules.PodNetworksSet(f), Kind: model.Networks, Family: f}, ofCluster, all)
	}
}

// setMembersOf fills a set with the members of its family, or removes it.
func (m *HostsManager) setMembersOf(s ipsets.Set, wanted bool, members []model.Member) {
	has := m.podSets[s.Name]
	switch {
	case !wanted && has != nil:
		m.sets.RemoveSet(s.Name)
		delete(m.podSets, s.Name)
	case wanted:
		if has == nil {
			has = map[model.Member]bool{}
			m.sets.CreateSet(s)
			m.podSets[s.Name] = has
		}
		fillSet(m.sets, s.Name, has, ofFamily(members, s.Family))
	}
}
