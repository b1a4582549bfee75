package managers

import (
	"net/netip"
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
	nodes    map[string]*model.Node
	networks podNetworks
	// peers are the destinations to which pods keep their addresses without a tunnel; nil if all are tunnelled.
	peers    *podNetworks
	services servicePrefixes
	dirty    dirty[string]
}

// NewStaticManager returns a manager for the node of that name and sets the desired
// sets of pod prefixes. The services are the configured prefixes of Service addresses;
// the datastore may have more.
func NewStaticManager(node string, renderer *rules.Renderer, chains Chains, sets ipsets.Sets, services ...netip.Prefix) *StaticManager {
	return &StaticManager{
		node: node, renderer: renderer, chains: chains,
		nodes: map[string]*model.Node{}, networks: newPodNetworks(sets), peers: routedPeers(renderer, sets),
		services: newServicePrefixes(services), dirty: dirty[string]{},
	}
}

// OnUpdate takes updates of nodes, and the prefixes of Services.
func (m *StaticManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		m.nodes[u.Node.Name] = u.Node
		m.dirty.add(u.Node.Name)
	case model.NodeRemove:
		delete(m.nodes, u.Name)
		m.dirty.add(u.Name)
	case model.ServiceCIDRsUpdate:
		if m.services.set(u.Prefixes) {
			m.dirty.add(m.node)
		}
	}
}

// CompleteDeferredWork sets the chains if this node changed, and the prefixes
// of the nodes that changed.
func (m *StaticManager) CompleteDeferredWork() {
	for _, name := range m.dirty.take(strings.Compare) {
		n := m.nodes[name]
		m.networks.update(name, n)
		if m.peers != nil && name != m.node {
			m.peers.update(name, n)
		}
		if name == m.node && n != nil {
			for _, c := range m.renderer.Node().Static(n, m.services.all...) {
				m.chains.UpdateChain(c)
			}
		}
	}
}
