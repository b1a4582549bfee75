package managers

import (
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/rules"
)

// EgressManager keeps the table that gives packets of pods to the outside the addresses of Egresses (rules.Egress), for every
// backend, and the addresses that this node adds to an interface for that.
type EgressManager struct {
	node     string
	renderer *rules.Renderer
	chains   Chains
	sets     ipsets.Sets
	networks podNetworks
	// peers are the pod prefixes of all peers.
	peers    podNetworks
	egresses []model.EgressAddress
	// members are those of each set, by its name.
	members map[string]map[model.Member]bool
	dirty   bool
	// self is this node.
	self     *model.Node
	assigned atomic.Pointer[hostnet.Wanted]
}

// NewEgressManager returns a manager for the node of that name.
func NewEgressManager(node string, renderer *rules.Renderer, chains Chains, sets ipsets.Sets) *EgressManager {
	name := func(f model.Family) string { return rules.ClusterSet(f).Name }
	return &EgressManager{
		node: node, renderer: renderer, chains: chains, sets: sets, members: map[string]map[model.Member]bool{},
		networks: newNetworks(sets, name, func(n *model.Node) []netip.Prefix {
			all := slices.Clone(n.PodCIDRs)
			for _, a := range n.Addresses {
				all = append(all, model.AddressMember(a).Prefix)
			}
			return all
		}),
		peers: newNetworks(sets, func(f model.Family) string { return rules.PeerPodsSet(f).Name }, func(n *model.Node) []netip.Prefix { return n.PodCIDRs }),
	}
}

// Needed reports whether there is an Egress. Without one, the table is not needed.
func (m *EgressManager) Needed() bool { return len(m.egresses) > 0 }

// Assigned returns the addresses that this node has to hold, nil before the node is known. It may be called from any
// goroutine.
func (m *EgressManager) Assigned() *hostnet.Wanted { return m.assigned.Load() }

// OnUpdate takes updates of nodes and Egresses.
func (m *EgressManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		m.networks.update(u.Node.Name, u.Node)
		if u.Node.Name == m.node {
			m.self, m.dirty = u.Node, true
		} else {
			m.peers.update(u.Node.Name, u.Node)
		}
	case model.NodeRemove:
		m.networks.update(u.Name, nil)
		if u.Name != m.node {
			m.peers.update(u.Name, nil)
		}
	case model.EgressesUpdate:
		m.egresses, m.dirty = u.Egresses, true
	}
}

// CompleteDeferredWork brings chains and sets up to date.
func (m *EgressManager) CompleteDeferredWork() {
	if !m.dirty || m.self == nil {
		return
	}
	m.dirty = false
	wanted := map[ipsets.Set][]model.Member{}
	for _, f := range model.Families() {
		wanted[rules.EgressDroppedSet(f)], wanted[rules.EgressAwaySet(f)], wanted[rules.EgressLeasedSet(f)] = nil, nil, nil
	}
	own, assigned, leased := map[netip.Addr]bool{}, map[netip.Addr]bool{}, map[netip.Addr]bool{}
	holds := func(e *model.EgressAddress) bool { return e.Node == m.node && e.Address.IsValid() }
	for i := range m.egresses {
		e := &m.egresses[i]
		here := holds(e)
		if here {
			own[e.Address] = true
			wanted[rules.EgressPodsSet(e.Address)] = wanted[rules.EgressPodsSet(e.Address)] // also without pods
		}
		if e.Leased {
			leased[e.Address] = leased[e.Address] || here
		} else if here && e.Assigned {
			assigned[e.Address] = true
		}
	}
	for pod, e := range selected(m.egresses) {
		set := rules.EgressDroppedSet(model.FamilyOf(pod))
		if holds(e) {
			set = rules.EgressPodsSet(e.Address)
		}
		wanted[set] = append(wanted[set], model.AddressMember(pod))
		if !holds(e) && e.Node != "" && e.Address.IsValid() && hasPod(m.self, pod) {
			away := rules.EgressAwaySet(model.FamilyOf(pod))
			wanted[away] = append(wanted[away], model.AddressMember(pod))
		}
	}
	now := &hostnet.Wanted{Always: slices.SortedFunc(maps.Keys(assigned), netip.Addr.Compare), Node: m.self.Addresses}
	for _, a := range slices.SortedFunc(maps.Keys(leased), netip.Addr.Compare) {
		set := rules.EgressLeasedSet(model.FamilyOf(a))
		wanted[set] = append(wanted[set], model.AddressMember(a))
		if leased[a] {
			now.Leased = append(now.Leased, a)
		}
	}
	m.assigned.Store(now)
	m.program(slices.SortedFunc(maps.Keys(own), netip.Addr.Compare), wanted)
}

// hasPod reports whether an address is in the pod prefixes of a node.
func hasPod(n *model.Node, a netip.Addr) bool {
	return slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// program sets the chains and the sets that they look up.
func (m *EgressManager) program(addresses []netip.Addr, wanted map[ipsets.Set][]model.Member) {
	named := map[string]bool{}
	for s, members := range wanted {
		if named[s.Name] = true; m.members[s.Name] == nil {
			m.sets.CreateSet(s)
			m.members[s.Name] = map[model.Member]bool{}
		}
		fillSet(m.sets, s.Name, m.members[s.Name], members)
	}
	for _, c := range m.renderer.Node().Egress(addresses) {
		m.chains.UpdateChain(c)
	}
	for _, name := range slices.Sorted(maps.Keys(m.members)) {
		if !named[name] {
			m.sets.RemoveSet(name)
			delete(m.members, name)
		}
	}
}
