package managers

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// ownPods keeps the sets of the addresses of this node's pods (rules.OwnPodsSet).
type ownPods struct {
	owners *owners
	sets   ipsets.Sets
}

func newOwnPods(sets ipsets.Sets) ownPods {
	for _, f := range model.Families() {
		sets.CreateSet(rules.OwnPodsSet(f))
	}
	return ownPods{newOwners(), sets}
}

// update takes updates of attachments, and reports whether an address has another owner now.
func (p ownPods) update(u model.Update) bool {
	changes := p.owners.update(u)
	for _, c := range changes {
		set, member := rules.OwnPodsSet(model.FamilyOf(c.addr)).Name, []model.Member{model.AddressMember(c.addr)}
		switch {
		case c.after == nil:
			p.sets.RemoveMembers(set, member)
		case c.before == nil:
			p.sets.AddMembers(set, member)
		}
	}
	return len(changes) > 0
}

// OwnPodsManager keeps the chains that every packet of a pod passes, and the sets of the addresses of this node's pods, in the mode
// networkPolicyOnly. There it replaces StaticManager.
type OwnPodsManager struct {
	pods     ownPods
	renderer *rules.Renderer
	chains   Chains
	rendered bool
}

// NewOwnPodsManager returns a manager without pods.
func NewOwnPodsManager(renderer *rules.Renderer, chains Chains, sets ipsets.Sets) *OwnPodsManager {
	return &OwnPodsManager{pods: newOwnPods(sets), renderer: renderer, chains: chains}
}

// OnUpdate takes updates of attachments.
func (m *OwnPodsManager) OnUpdate(u model.Update) { m.pods.update(u) }

// CompleteDeferredWork sets the chains once.
func (m *OwnPodsManager) CompleteDeferredWork() {
	if m.rendered {
		return
	}
	m.rendered = true
	for _, c := range m.renderer.Node().Static(&model.Node{}) {
		m.chains.UpdateChain(c)
	}
}

// PodSourceManager keeps the table that knows the packets of this node's pods in the mode networkPolicyOnly, by
// the interface, MAC address and address that they come with (rules.PodSources).
type PodSourceManager struct {
	pods     ownPods
	renderer *rules.Renderer
	chains   Chains
	tree     *rules.InterfaceTree
	// recorded has the interface by which packets of each pod's pair come in. A pod that was made anew has two pairs for a while: the
	// one without an address may send nothing.
	recorded map[string]string
	// members are those of each set, by its name. interfaces are those with a chain.
	members    map[string]map[model.Member]bool
	interfaces map[string]bool
	dirty      bool
}

// NewPodSourceManager returns a manager without pods.
func NewPodSourceManager(renderer *rules.Renderer, chains Chains, sets ipsets.Sets) *PodSourceManager {
	return &PodSourceManager{
		pods: newOwnPods(sets), renderer: renderer, chains: chains, tree: rules.NewInterfaceTree(renderer.Names, model.Egress),
		recorded: map[string]string{}, members: map[string]map[model.Member]bool{}, interfaces: map[string]bool{}, dirty: true,
	}
}

// OnUpdate takes updates of attachments.
func (m *PodSourceManager) OnUpdate(u model.Update) {
	m.dirty = m.pods.update(u) || m.dirty
	switch u := u.(type) {
	case model.AttachmentUpdate:
		m.recorded[u.Attachment.Interface], m.dirty = u.Attachment.Entrance(), true
	case model.AttachmentRemove:
		delete(m.recorded, u.Interface)
		m.dirty = true
	}
}

// CompleteDeferredWork brings chains and sets up to date.
func (m *PodSourceManager) CompleteDeferredWork() {
	if !m.dirty {
		return
	}
	m.dirty = false
	wanted := map[string][]model.Member{}
	interfaces := map[string]bool{}
	for _, iface := range m.recorded {
		interfaces[iface] = true
	}
	for addr := range m.pods.owners.claims {
		a := m.pods.owners.owner(addr)
		if a == nil {
			continue
		}
		set := rules.SendersSet(a.Entrance(), model.FamilyOf(addr)).Name
		wanted[set] = append(wanted[set], model.Member{Prefix: netip.PrefixFrom(addr, addr.BitLen()), MAC: model.MAC(a.MAC)})
	}
	for _, iface := range slices.Sorted(maps.Keys(interfaces)) {
		m.provide(iface, wanted)
	}
	for _, iface := range slices.Sorted(maps.Keys(m.interfaces)) {
		if !interfaces[iface] {
			m.withdraw(iface)
		}
	}
	changes := m.tree.Changes()
	for _, c := range changes.Chains {
		m.chains.UpdateChain(c)
	}
	for _, c := range m.renderer.Node().PodSources(m.tree.Root()) {
		m.chains.UpdateChain(c)
	}
	for _, gone := range changes.Removed {
		m.chains.RemoveChain(gone)
	}
}

// provide sets the chain of an interface and the members of its sets.
func (m *PodSourceManager) provide(iface string, wanted map[string][]model.Member) {
	for _, f := range model.Families() {
		s := rules.SendersSet(iface, f)
		if m.members[s.Name] == nil {
			m.pods.sets.CreateSet(s)
			m.members[s.Name] = map[model.Member]bool{}
		}
		fillSet(m.pods.sets, s.Name, m.members[s.Name], wanted[s.Name])
	}
	if m.interfaces[iface] {
		return
	}
	c := rules.PodInterfaceChain(iface)
	if err := m.tree.Set(iface, rules.PodInterfaceVerdict(iface)); err != nil {
		return // no rule can match the name: the packets of its pods stay denied (rules.PodSources)
	}
	m.interfaces[iface] = true
	m.chains.UpdateChain(c)
}

// withdraw removes what an interface without pods had.
func (m *PodSourceManager) withdraw(iface string) {
	delete(m.interfaces, iface)
	m.tree.Remove(iface)
	m.chains.RemoveChain(rules.PodInterfaceChainName(iface))
	for _, f := range model.Families() {
		name := rules.SendersSet(iface, f).Name
		m.pods.sets.RemoveSet(name)
		delete(m.members, name)
	}
}
