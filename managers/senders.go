package managers

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// Hops finds the neighbours that lead to peers.
type Hops interface {
	// SetPeers replaces the addresses of the peers, sorted. A HopsUpdate follows.
	SetPeers([]netip.Addr)
}

// SenderManager keeps the table by which this node believes the pod addresses of packets of peers without a
// tunnel (rules.Senders), for every backend. A packet with the address of a peer's pod is believed if it has the MAC address of the
// neighbour by which this node's own packets to the peer leave, and comes in by the same interface.
type SenderManager struct {
	node     string
	renderer *rules.Renderer
	chains   Chains
	sets     ipsets.Sets
	hops     Hops
	ways     ways
	nodes    map[string]*model.Node
	networks podNetworks
	known    map[netip.Addr]model.Hop
	// members are those of each set, by its name.
	members map[string]map[model.Member]bool
	// answered is set after the first HopsUpdate. Before, the table stays as an earlier agent left it.
	answered, dirty bool
	// programmed is set once chain and sets have their desired state.
	programmed bool
}

// Programmed reports whether chain and sets have their desired state. Before the first HopsUpdate they have not, and the
// table of an earlier agent must stay. It is called where CompleteDeferredWork is.
func (m *SenderManager) Programmed() bool { return m.programmed }

// NewSenderManager returns a manager for the node of that name.
func NewSenderManager(node string, mode model.TrafficMode, renderer *rules.Renderer, chains Chains, sets ipsets.Sets, hops Hops) *SenderManager {
	return &SenderManager{
		node: node, renderer: renderer, chains: chains, sets: sets, hops: hops, ways: ways{mode: mode},
		nodes: map[string]*model.Node{}, networks: newPodNetworks(sets), known: map[netip.Addr]model.Hop{}, members: map[string]map[model.Member]bool{}, dirty: true,
	}
}

// OnUpdate takes updates of nodes, of this node's addresses and of hops.
func (m *SenderManager) OnUpdate(u model.Update) {
	m.dirty = m.ways.update(u) || m.dirty
	switch u := u.(type) {
	case model.NodeUpdate:
		m.nodes[u.Node.Name] = u.Node
		m.networks.update(u.Node.Name, u.Node)
		m.dirty = true
	case model.NodeRemove:
		delete(m.nodes, u.Name)
		m.networks.update(u.Name, nil)
		m.dirty = true
	case model.HopsUpdate:
		m.known, m.answered = map[netip.Addr]model.Hop{}, true
		for _, h := range u.Hops {
			m.known[h.Address] = h
		}
		m.dirty = true
	}
}

// CompleteDeferredWork brings chain and sets up to date.
func (m *SenderManager) CompleteDeferredWork() {
	self := m.nodes[m.node]
	if !m.dirty || self == nil {
		return
	}
	m.dirty = false
	var peers []netip.Addr
	interfaces, wanted := map[string]bool{}, map[string]map[model.Member]bool{}
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[name]
		if name == m.node {
			continue
		}
		for _, f := range m.ways.of(self, n, model.ByPeer, model.ByNetwork) {
			a, pods := n.Address(f).Unmap(), n.PodCIDR(f)
			peers = append(peers, a)
			h, ok := m.known[a]
			if !ok || !pods.IsValid() || pods.Overlaps(self.PodCIDR(f)) {
				continue
			}
			interfaces[h.Interface] = true
			set := rules.SendersSet(h.Interface, f).Name
			if wanted[set] == nil {
				wanted[set] = map[model.Member]bool{}
			}
			add(wanted[set], model.Member{Prefix: pods, MAC: h.MAC})
		}
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	m.hops.SetPeers(slices.Compact(peers))
	if m.answered {
		m.programmed = true
		m.program(slices.Sorted(maps.Keys(interfaces)), wanted)
	}
}

// add adds a member to a set. One within another of the same neighbour adds nothing, and the kernel refuses it.
func add(set map[model.Member]bool, now model.Member) {
	for m := range set {
		switch {
		case m.MAC != now.MAC || !m.Prefix.Overlaps(now.Prefix):
		case m.Prefix.Bits() <= now.Prefix.Bits():
			return
		default:
			delete(set, m)
		}
	}
	set[now] = true
}

// program sets the chain and the sets that it looks up.
func (m *SenderManager) program(interfaces []string, wanted map[string]map[model.Member]bool) {
	named := map[string]bool{}
	for _, i := range interfaces {
		for _, f := range model.Families() {
			s := rules.SendersSet(i, f)
			if named[s.Name] = true; m.members[s.Name] == nil {
				m.sets.CreateSet(s)
				m.members[s.Name] = map[model.Member]bool{}
			}
			m.fill(s.Name, wanted[s.Name])
		}
	}
	m.chains.UpdateChain(m.renderer.Node().Senders(interfaces))
	for _, name := range slices.Sorted(maps.Keys(m.members)) {
		if !named[name] {
			m.sets.RemoveSet(name)
			delete(m.members, name)
		}
	}
}

// fill gives a set its members.
func (m *SenderManager) fill(set string, wanted map[model.Member]bool) {
	has := m.members[set]
	var added, gone []model.Member
	for member := range has {
		if !wanted[member] {
			gone = append(gone, member)
			delete(has, member)
		}
	}
	for member := range wanted {
		if !has[member] {
			added = append(added, member)
			has[member] = true
		}
	}
	slices.SortFunc(gone, model.Member.Compare)
	slices.SortFunc(added, model.Member.Compare)
	m.sets.RemoveMembers(set, gone)
	m.sets.AddMembers(set, added)
}
