package managers

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// TunnelManager keeps the flows to and from each peer node, for every backend.
type TunnelManager struct {
	bridge pipeline.Node
	node   string
	flows  Flows
	ways   ways
	self   *model.Node
	peers  map[string]*model.Node
	dirty  dirty[string]
	// egresses are all Egresses. away has the pods of this node that leave by a peer, served the pods of a peer that leave by
	// this node, by the peer's name.
	egresses      []model.EgressAddress
	away, served  map[string][]netip.Addr
	egressesDirty bool
}

// NewTunnelManager returns a manager for the node of that name. bridge has the ports
// of its bridge. Packets to and from peers without a tunnel pass the gateway port as those of the outside.
func NewTunnelManager(node string, mode model.TrafficMode, bridge pipeline.Node, flows Flows) *TunnelManager {
	return &TunnelManager{ways: newWays(mode), bridge: bridge, node: node, flows: flows, peers: map[string]*model.Node{}, dirty: dirty[string]{}}
}

// SetMode chooses the pipeline, as ForwardingManager.SetMode.
func (m *TunnelManager) SetMode(mode pipeline.Mode) {
	if m.bridge.Mode != mode {
		m.bridge.Mode = mode
		m.touchAll()
	}
}

func (m *TunnelManager) touchAll() {
	for name := range m.peers {
		m.dirty.add(name)
	}
}

// OnUpdate takes updates of nodes, and an OffloadUpdate.
func (m *TunnelManager) OnUpdate(u model.Update) {
	if m.ways.update(u) {
		m.touchAll()
	}
	switch u := u.(type) {
	case model.OffloadUpdate:
		if m.bridge.Offload != u.Active {
			m.bridge.Offload = u.Active
			m.touchAll()
		}
	case model.NodeUpdate:
		if u.Node.Name == m.node {
			m.self, m.egressesDirty = u.Node, true
			m.touchAll()
			return
		}
		m.replace(u.Node.Name, u.Node)
	case model.NodeRemove:
		if u.Name != m.node {
			m.replace(u.Name, nil)
		}
	case model.EgressesUpdate:
		m.egresses, m.egressesDirty = u.Egresses, true
	}
}

// replace puts a node in the place of a peer; nil removes the peer.
func (m *TunnelManager) replace(name string, now *model.Node) {
	delete(m.peers, name)
	if now != nil {
		m.peers[name] = now
	}
	m.dirty.add(name)
	m.egressesDirty = true
}

// CompleteDeferredWork sets the flows of the peers that changed.
func (m *TunnelManager) CompleteDeferredWork() {
	if m.self == nil {
		return
	}
	node := withNode(m.bridge, m.self)
	m.setEgresses(node)
	for _, name := range m.dirty.take(strings.Compare) {
		if p := m.peers[name]; p != nil {
			routed := m.ways.of(m.self, p, model.ByPeer, model.ByNetwork, model.ByWireGuard, model.NoWay)
			if !m.self.OuterOf(p).IsValid() {
				routed = model.Families() // there is no tunnel
			}
			away, served := notRouted(m.away[name], routed), notRouted(m.served[name], routed)
			m.flows.SetFlows("peer "+name, func() []openflow.Flow {
				return slices.Concat(pipeline.Peer(node, p, routed...), pipeline.EgressPeer(node, p, away, served))
			})
		} else {
			m.flows.RemoveFlows("peer " + name)
		}
	}
}

// egressFlows is the group of the flows that all Egresses share.
const egressFlows = "egress"

// setEgresses decides which pods leave by which node, and touches the peers for which that has changed.
func (m *TunnelManager) setEgresses(node pipeline.Node) {
	if !m.egressesDirty {
		return
	}
	m.egressesDirty = false
	away, served := map[string][]netip.Addr{}, map[string][]netip.Addr{}
	for pod, e := range selected(m.egresses) {
		switch {
		case !e.Address.IsValid() || e.Node == "":
		case e.Node == m.node:
			if home := m.home(pod); home != "" {
				served[home] = append(served[home], pod)
			}
		case hasPod(m.self, pod):
			away[e.Node] = append(away[e.Node], pod)
		}
	}
	for name := range m.peers {
		if !slices.Equal(away[name], m.away[name]) || !slices.Equal(served[name], m.served[name]) {
			m.dirty.add(name)
		}
	}
	m.away, m.served = away, served
	if len(m.egresses) == 0 {
		m.flows.RemoveFlows(egressFlows)
		return
	}
	nodes := []*model.Node{m.self}
	for _, name := range slices.Sorted(maps.Keys(m.peers)) {
		nodes = append(nodes, m.peers[name])
	}
	m.flows.SetFlows(egressFlows, func() []openflow.Flow { return pipeline.EgressBase(node, nodes) })
}

// home returns the peer whose pod has the address, or "".
func (m *TunnelManager) home(pod netip.Addr) string {
	for _, name := range slices.Sorted(maps.Keys(m.peers)) {
		if hasPod(m.peers[name], pod) {
			return name
		}
	}
	return ""
}

// notRouted returns the addresses of the families that take the tunnel.
func notRouted(all []netip.Addr, routed []model.Family) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return slices.Contains(routed, model.FamilyOf(a)) })
}
