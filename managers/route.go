package managers

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
)

// HostNetwork takes what is wanted of the host's side of the gateway port.
type HostNetwork interface {
	SetState(hostnet.State)
}

// RouteManager keeps the gateway port's addresses, and the routes and
// neighbours to the peers, for every backend.
type RouteManager struct {
	node  string
	base  hostnet.State
	host  HostNetwork
	nodes map[string]*model.Node
	dirty bool
}

// NewRouteManager returns a manager for the node of that name. What base says
// of interfaces, tables and MTU is kept; addresses and peers follow the nodes.
func NewRouteManager(node string, base hostnet.State, host HostNetwork) *RouteManager {
	return &RouteManager{node: node, base: base, host: host, nodes: map[string]*model.Node{}}
}

// OnUpdate takes updates of nodes.
func (m *RouteManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		m.nodes[u.Node.Name] = u.Node
		m.dirty = true
	case model.NodeRemove:
		delete(m.nodes, u.Name)
		m.dirty = true
	}
}

// CompleteDeferredWork sets the state if a node changed.
func (m *RouteManager) CompleteDeferredWork() {
	self := m.nodes[m.node]
	if !m.dirty || self == nil {
		return
	}
	m.dirty = false
	state := m.base
	state.NodeAddresses = self.Addresses
	state.GatewayAddresses = nil
	for _, g := range gateways(self) {
		state.GatewayAddresses = append(state.GatewayAddresses, netip.PrefixFrom(g, self.PodCIDR(model.FamilyOf(g)).Bits()))
	}
	state.Peers = nil
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		if n := m.nodes[name]; name != m.node {
			state.Peers = append(state.Peers, hostnet.Peer{PodCIDRs: n.PodCIDRs, Gateways: gateways(n), NodeAddresses: n.Addresses})
		}
	}
	m.host.SetState(state)
}
