package managers

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

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
// neighbour by which this node's own packets to the peer leave, and comes in by the same interface. In a subnet of this
// node that neighbour must be the peer, and no other peer there may have its MAC address. With WireGuard, a packet is
// believed if it comes in by that device, and the table also drops what would leave in the clear (rules.Cleartext).
type SenderManager struct {
	node     string
	renderer *rules.Renderer
	chains   Chains
	sets     ipsets.Sets
	hops     Hops
	ways     ways
	nodes    map[string]*model.Node
	networks podNetworks
	// addresses are those of all nodes; nil without WireGuard.
	addresses *podNetworks
	known     map[netip.Addr]model.Hop
	// members are those of each set, by its name.
	members map[string]map[model.Member]bool
	// answered is set after the first HopsUpdate. Before, the table stays as an earlier agent left it.
	answered, dirty bool
	// programmed is set once chain and sets have their desired state.
	programmed bool
	// problems are the routed peers that are not believed although their hop is known.
	problems atomic.Pointer[[]model.Problem]
}

// Problems returns the routed peers that are not believed although their hop is known. It may be called from any
// goroutine.
func (m *SenderManager) Problems() []model.Problem {
	if all := m.problems.Load(); all != nil {
		return *all
	}
	return nil
}

// Programmed reports whether chain and sets have their desired state. Before the first HopsUpdate they have not, and the
// table of an earlier agent must stay. It is called where CompleteDeferredWork is.
func (m *SenderManager) Programmed() bool { return m.programmed }

// NewSenderManager returns a manager for the node of that name.
func NewSenderManager(node string, mode model.TrafficMode, renderer *rules.Renderer, chains Chains, sets ipsets.Sets, hops Hops) *SenderManager {
	m := &SenderManager{
		node: node, renderer: renderer, chains: chains, sets: sets, hops: hops, ways: newWays(mode),
		nodes: map[string]*model.Node{}, networks: newPodNetworks(sets), known: map[netip.Addr]model.Hop{}, members: map[string]map[model.Member]bool{}, dirty: true,
	}
	if mode == model.WireGuard {
		addresses := newNodeAddresses(sets)
		m.addresses = &addresses
	}
	return m
}

// replace gives the sets the prefixes and addresses of a node, nil if it is gone.
func (m *SenderManager) replace(name string, n *model.Node) {
	m.networks.update(name, n)
	if m.addresses != nil {
		m.addresses.update(name, n)
	}
	m.dirty = true
}

// OnUpdate takes updates of nodes, of this node's addresses and of hops.
func (m *SenderManager) OnUpdate(u model.Update) {
	m.dirty = m.ways.update(u) || m.dirty
	switch u := u.(type) {
	case model.NodeUpdate:
		m.nodes[u.Node.Name] = u.Node
		m.replace(u.Node.Name, u.Node)
	case model.NodeRemove:
		delete(m.nodes, u.Name)
		m.replace(u.Name, nil)
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
	peers, all := m.senders(self)
	m.hops.SetPeers(peers)
	if !m.answered {
		return
	}
	shared := sharing(all)
	var problems []model.Problem
	interfaces, wanted := map[string]bool{}, map[string][]model.Member{}
	for _, s := range all {
		if s.near && s.hop.Neighbour != s.address() {
			problems = append(problems, s.problem(fmt.Sprintf("this node's packets to it go to neighbour %s, so its pods are not believed: the peer must be reached directly", s.hop.Neighbour)))
			continue
		}
		if names := shared[s.link()]; s.near && len(names) > 1 {
			problems = append(problems, s.problem(fmt.Sprintf("nodes %s have the MAC address %s at interface %s, so their pods are not believed: each node needs a MAC address of its own", strings.Join(names, ", "), s.hop.MAC, s.hop.Interface)))
			continue
		}
		if !s.pods.IsValid() || s.pods.Overlaps(self.PodCIDR(s.family)) {
			continue
		}
		interfaces[s.hop.Interface] = true
		set := rules.SendersSet(s.hop.Interface, s.family).Name
		wanted[set] = append(wanted[set], model.Member{Prefix: s.pods, MAC: s.hop.MAC})
	}
	m.problems.Store(&problems)
	m.programmed = true
	m.program(slices.Sorted(maps.Keys(interfaces)), wanted)
}

// sender is a routed peer with a known hop in one family.
type sender struct {
	node   *model.Node
	family model.Family
	// near is set if the peer is in a subnet of this node.
	near bool
	hop  model.Hop
	pods netip.Prefix
}

func (s sender) address() netip.Addr { return s.node.Address(s.family).Unmap() }

func (s sender) problem(reason string) model.Problem {
	return model.Problem{Object: model.ObjectRef{Kind: "Node", Name: s.node.Name}, Field: "status.addresses", Reason: fmt.Sprintf("IPv%s: %s", s.family, reason)}
}

// link is a MAC address at an interface.
type link struct {
	iface string
	mac   model.MAC
}

func (s sender) link() link { return link{s.hop.Interface, s.hop.MAC} }

// senders returns the addresses of all routed peers, sorted, and those peers whose hop is known.
func (m *SenderManager) senders(self *model.Node) (peers []netip.Addr, all []sender) {
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[name]
		if name == m.node {
			continue
		}
		near := m.ways.of(self, n, model.ByPeer)
		for _, f := range m.ways.of(self, n, model.ByPeer, model.ByNetwork) {
			s := sender{node: n, family: f, near: slices.Contains(near, f), pods: n.PodCIDR(f)}
			peers = append(peers, s.address())
			if h, ok := m.known[s.address()]; ok {
				s.hop = h
				all = append(all, s)
			}
		}
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	return slices.Compact(peers), all
}

// sharing returns the names of the peers in a subnet of this node that have a MAC address.
func sharing(all []sender) map[link][]string {
	names := map[link][]string{}
	for _, s := range all {
		// Both families of a node come one after the other.
		if at := names[s.link()]; s.near && !slices.Contains(at, s.node.Name) {
			names[s.link()] = append(at, s.node.Name)
		}
	}
	return names
}

// distinct returns members without those within another one of the same neighbour: they add nothing, and the kernel
// refuses them.
func distinct(all []model.Member) map[model.Member]bool {
	slices.SortFunc(all, func(a, b model.Member) int {
		return cmp.Or(bytes.Compare(a.MAC[:], b.MAC[:]), a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	kept := map[model.Member]bool{}
	var last model.Member
	for _, m := range all {
		if last.Prefix.IsValid() && last.MAC == m.MAC && last.Prefix.Overlaps(m.Prefix) {
			continue
		}
		last = m
		kept[m] = true
	}
	return kept
}

// program sets the chain and the sets that it looks up.
func (m *SenderManager) program(interfaces []string, wanted map[string][]model.Member) {
	named := map[string]bool{}
	for _, i := range interfaces {
		for _, f := range model.Families() {
			s := rules.SendersSet(i, f)
			if named[s.Name] = true; m.members[s.Name] == nil {
				m.sets.CreateSet(s)
				m.members[s.Name] = map[model.Member]bool{}
			}
			fillSet(m.sets, s.Name, m.members[s.Name], slices.Collect(maps.Keys(distinct(wanted[s.Name]))))
		}
	}
	m.chains.UpdateChain(m.renderer.Node().Senders(interfaces))
	if m.ways.mode == model.WireGuard {
		m.chains.UpdateChain(m.renderer.Node().Cleartext())
	}
	for _, name := range slices.Sorted(maps.Keys(m.members)) {
		if !named[name] {
			m.sets.RemoveSet(name)
			delete(m.members, name)
		}
	}
}

// fillSet gives a set its members, and has those that it has already.
func fillSet(sets ipsets.Sets, set string, has map[model.Member]bool, wanted []model.Member) {
	keep := map[model.Member]bool{}
	var added, gone []model.Member
	for _, member := range wanted {
		if keep[member] = true; !has[member] {
			added = append(added, member)
			has[member] = true
		}
	}
	for member := range has {
		if !keep[member] {
			gone = append(gone, member)
			delete(has, member)
		}
	}
	slices.SortFunc(gone, model.Member.Compare)
	slices.SortFunc(added, model.Member.Compare)
	sets.RemoveMembers(set, gone)
	sets.AddMembers(set, added)
}
