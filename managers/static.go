package managers

import (
	"slices"
	"strings"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// StaticManager keeps the chains that every packet of a pod passes, and the
// sets of the cluster's pod prefixes, by which a forged pod address from
// outside is known.
type StaticManager struct {
	node     string
	renderer *rules.Renderer
	chains   Chains
	sets     ipsets.Sets
	nodes    map[string]*model.Node
	// networks are the members that the sets were given, by node.
	networks map[string][]model.Member
	dirty    dirty[string]
}

// NewStaticManager returns a manager for the node of that name and wants the
// sets of pod prefixes.
func NewStaticManager(node string, renderer *rules.Renderer, chains Chains, sets ipsets.Sets) *StaticManager {
	for _, f := range model.Families() {
		sets.CreateSet(rules.PodNetworks(f))
	}
	return &StaticManager{
		node: node, renderer: renderer, chains: chains, sets: sets,
		nodes: map[string]*model.Node{}, networks: map[string][]model.Member{}, dirty: dirty[string]{},
	}
}

// OnUpdate takes updates of nodes.
func (m *StaticManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		m.nodes[u.Node.Name] = u.Node
		m.dirty.add(u.Node.Name)
	case model.NodeRemove:
		delete(m.nodes, u.Name)
		m.dirty.add(u.Name)
	}
}

// CompleteDeferredWork sets the chains if this node changed, and the prefixes
// of the nodes that changed.
func (m *StaticManager) CompleteDeferredWork() {
	for _, name := range m.dirty.take(strings.Compare) {
		n := m.nodes[name]
		m.setNetworks(name, n)
		if name == m.node && n != nil {
			for _, c := range m.renderer.Static(n) {
				m.chains.UpdateChain(c)
			}
		}
	}
}

func (m *StaticManager) setNetworks(name string, n *model.Node) {
	var now []model.Member
	if n != nil {
		for _, p := range n.PodCIDRs {
			now = append(now, model.Member{Prefix: p})
		}
	}
	old := m.networks[name]
	for _, f := range model.Families() {
		set := rules.PodNetworksSet(f)
		if gone := without(ofFamily(old, f), now); len(gone) > 0 {
			m.sets.RemoveMembers(set, gone)
		}
		if added := without(ofFamily(now, f), old); len(added) > 0 {
			m.sets.AddMembers(set, added)
		}
	}
	m.networks[name] = now
	if n == nil {
		delete(m.networks, name)
	}
}

func without(members, others []model.Member) []model.Member {
	return slices.DeleteFunc(members, func(m model.Member) bool { return slices.Contains(others, m) })
}
