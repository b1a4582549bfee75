package managers

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// OwnNodeManager keeps the chains that judge packets of pods to their own node: one for each
// list of policies (rules.OwnNode), with a set of the addresses of its pods, and the chains
// that lead to them. Without such a list there are no such chains. The chains of the policies
// are another manager's.
//
// A pod that the datastore never knew is in no list. A pod that the datastore no longer has
// keeps its list while it is attached: its containers may still run. A list with a policy
// that is gone denies all packets.
type OwnNodeManager struct {
	partSets
	chains    Chains
	endpoints map[model.PodID]*model.Endpoint
	// gone are the endpoints that the datastore no longer has, and that are still attached.
	gone   map[model.PodID]bool
	owners *owners
	// hasRules has the known policies of the ordered tiers: whether they have egress rules.
	hasRules map[model.PolicyID]bool
	// parts are the chains by their names, placed the list of each address.
	parts      map[string]*ownNodePart
	placed     map[netip.Addr]ownNodeList
	refused    map[rules.PolicySide]bool
	dirtyPods  dirty[model.PodID]
	dirtyAddrs dirty[netip.Addr]
	// stale are the chains to render, by name; base is set if those that lead to them
	// are stale.
	stale dirty[string]
	base  bool
	// hasSets is set while the sets of all pods in a list are there.
	hasSets bool
}

// ownNodePart is a chain with its set. Two lists have one only if their names collide.
type ownNodePart struct {
	part
	lists map[string]model.Applied
}

// ownNodeList names a list by its identity and its chain.
type ownNodeList struct{ identity, chain string }

// NewOwnNodeManager returns a manager without pods.
func NewOwnNodeManager(renderer *rules.Renderer, chains Chains, sets ipsets.Sets) *OwnNodeManager {
	return &OwnNodeManager{
		partSets: partSets{renderer, sets}, chains: chains, endpoints: map[model.PodID]*model.Endpoint{}, gone: map[model.PodID]bool{}, owners: newOwners(),
		hasRules: map[model.PolicyID]bool{}, parts: map[string]*ownNodePart{}, placed: map[netip.Addr]ownNodeList{},
		refused: map[rules.PolicySide]bool{}, dirtyPods: dirty[model.PodID]{}, dirtyAddrs: dirty[netip.Addr]{}, stale: dirty[string]{},
	}
}

// OnUpdate takes updates of endpoints and attachments, and notes which policies have rules.
func (m *OwnNodeManager) OnUpdate(u model.Update) {
	for _, c := range m.owners.update(u) {
		m.dirtyAddrs.add(c.addr)
	}
	switch u := u.(type) {
	case model.EndpointUpdate:
		m.endpoints[u.Endpoint.ID] = u.Endpoint
		delete(m.gone, u.Endpoint.ID)
		m.dirtyPods.add(u.Endpoint.ID)
	case model.EndpointRemove:
		if m.owners.attachment(u.ID) != nil {
			m.gone[u.ID] = true
			return
		}
		delete(m.endpoints, u.ID)
	case model.AttachmentRemove:
		if m.gone[u.Pod] && m.owners.attachment(u.Pod) == nil {
			delete(m.gone, u.Pod)
			delete(m.endpoints, u.Pod)
		}
	case model.PolicyUpdate:
		has, known := m.hasRules[u.Policy.ID]
		if id := u.Policy.ID; id.Tier != model.TierNetworkPolicy && (!known || has != (len(u.Policy.Egress) > 0)) {
			m.hasRules[id] = len(u.Policy.Egress) > 0
			m.touch(func(asked model.PolicyID) bool { return asked == id })
		}
	case model.PolicyRemove:
		if _, known := m.hasRules[u.ID]; known {
			delete(m.hasRules, u.ID)
			m.touch(func(asked model.PolicyID) bool { return asked == u.ID })
		}
	}
}

// unknown returns a policy of a list that is gone.
func (m *OwnNodeManager) unknown(own model.Applied) (id model.PolicyID, found bool) {
	for id := range own.All() {
		if _, known := m.hasRules[id]; !known {
			return id, true
		}
	}
	return id, false
}

// touch has the chains rendered that ask one of these policies.
func (m *OwnNodeManager) touch(asks func(model.PolicyID) bool) {
	for name, p := range m.parts {
		for _, own := range p.lists {
			if slices.ContainsFunc(own.Admin, asks) || slices.ContainsFunc(own.Baseline, asks) {
				m.stale.add(name)
			}
		}
	}
}

// CompleteDeferredWork brings sets and chains up to date.
func (m *OwnNodeManager) CompleteDeferredWork() {
	m.noteRefused()
	for _, id := range m.dirtyPods.take(model.PodID.Compare) {
		if a := m.owners.attachment(id); a != nil {
			for _, addr := range a.Addresses {
				m.dirtyAddrs.add(addr)
			}
		}
	}
	resized := dirty[string]{}
	for _, a := range m.dirtyAddrs.take(netip.Addr.Compare) {
		m.place(a, resized)
	}
	for _, name := range resized.take(strings.Compare) {
		m.resize(name)
	}
	m.render()
}

// noteRefused notes the policies without a chain, and has the chains rendered again that ask
// a policy whose chain was refused or given.
func (m *OwnNodeManager) noteRefused() {
	now := map[rules.PolicySide]bool{}
	for side := range m.renderer.Policies().AllRefused() {
		now[side] = true
	}
	if maps.Equal(now, m.refused) {
		return
	}
	m.touch(func(id model.PolicyID) bool {
		side := rules.PolicySide{ID: id, Direction: model.Egress}
		return now[side] != m.refused[side]
	})
	m.refused = now
}

// place puts an address into the set of its pod's list.
func (m *OwnNodeManager) place(a netip.Addr, resized dirty[string]) {
	var own model.Applied
	if owner := m.owners.owner(a); owner != nil {
		if e := m.endpoints[owner.Pod]; e != nil {
			own = rules.OwnNode(e.Egress)
		}
	}
	var now ownNodeList
	if !own.Empty() {
		named := m.renderer.OwnNodePart(own)
		now = ownNodeList{rules.AppliedIdentity(model.Egress, own), named.Set}
		m.use(now, own, named)
	}
	was := m.placed[a]
	if was == now {
		return
	}
	for _, change := range []struct {
		list   ownNodeList
		wanted bool
	}{{was, false}, {now, true}} {
		if p := m.parts[change.list.chain]; p != nil {
			m.changeMember(&p.part, a, change.wanted)
			resized.add(change.list.chain)
		}
	}
	if m.placed[a] = now; own.Empty() {
		delete(m.placed, a)
	}
	m.changeJudged(a, was.chain != "", now.chain != "")
}

// changeJudged adds an address to the set of all pods in a list (rules.OwnNodeSet), or removes it.
func (m *OwnNodeManager) changeJudged(a netip.Addr, was, now bool) {
	if !m.renderer.SetsWithRules() || was == now {
		return
	}
	name, member := rules.OwnNodeSet(model.FamilyOf(a)), []model.Member{model.AddressMember(a)}
	if now {
		m.sets.AddMembers(name, member)
	} else {
		m.sets.RemoveMembers(name, member)
	}
}

// provideJudged creates or removes the sets of all pods in a list. They exist while the chains do.
func (m *OwnNodeManager) provideJudged(wanted bool) {
	if !m.renderer.SetsWithRules() || wanted == m.hasSets {
		return
	}
	m.hasSets = wanted
	for _, f := range model.Families() {
		if wanted {
			m.sets.CreateSet(ipsets.Set{Name: rules.OwnNodeSet(f), Kind: model.Addresses, Family: f})
		} else {
			m.sets.RemoveSet(rules.OwnNodeSet(f))
		}
	}
}

// use makes the chain of a list known.
func (m *OwnNodeManager) use(list ownNodeList, own model.Applied, named rules.Part) {
	m.provideJudged(true)
	p := m.parts[list.chain]
	if p == nil {
		p = &ownNodePart{
			part:  part{Part: named, members: map[netip.Addr]bool{}, sets: map[model.Family]string{}, programmed: map[model.Family][]model.Member{}},
			lists: map[string]model.Applied{},
		}
		m.parts[list.chain] = p
		m.createSets(&p.part)
		m.base = true
	}
	if _, known := p.lists[list.identity]; !known {
		p.lists[list.identity] = own
		m.stale.add(list.chain)
	}
}

// resize removes the lists of a chain that no pod has, and replaces its sets.
func (m *OwnNodeManager) resize(name string) {
	p, used := m.parts[name], map[string]bool{}
	for a := range p.members {
		used[m.placed[a].identity] = true
	}
	for identity, own := range p.lists {
		if !used[identity] {
			delete(p.lists, identity)
			m.stale.add(name)
			if len(p.lists) == 0 {
				m.removeSets(&p.part)
				m.chains.RemoveChain(m.renderer.OwnNodeClosed(own, "").Name)
				delete(m.parts, name)
				m.base = true
				return
			}
		}
	}
	if !m.renderer.SetsWithRules() {
		m.replaceSets(&p.part)
		m.base = true
	}
}

// render sets the chains that have changed.
func (m *OwnNodeManager) render() {
	for _, name := range m.stale.take(strings.Compare) {
		p := m.parts[name]
		if p == nil {
			continue
		}
		first := p.lists[slices.Min(slices.Collect(maps.Keys(p.lists)))]
		if len(p.lists) > 1 {
			m.chains.UpdateChain(m.renderer.OwnNodeClosed(first, "other lists of policies have the name of this chain"))
		} else if id, found := m.unknown(first); found {
			m.chains.UpdateChain(m.renderer.OwnNodeClosed(first, id.String()+" is gone, as the pods that it applied to"))
		} else {
			m.chains.UpdateChain(m.renderer.OwnNodeList(first, func(id model.PolicyID) bool { return m.hasRules[id] }))
		}
	}
	if !m.base {
		return
	}
	m.base = false
	if len(m.parts) == 0 {
		m.chains.RemoveChain(rules.ChainInput)
		m.chains.RemoveChain(rules.ChainOwnNode)
		m.provideJudged(false)
		return
	}
	var all []rules.Part
	for _, name := range slices.Sorted(maps.Keys(m.parts)) {
		all = append(all, m.parts[name].Part)
	}
	for _, c := range m.renderer.Input(all) {
		m.chains.UpdateChain(c)
	}
}
