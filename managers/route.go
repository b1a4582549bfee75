package managers

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
)

// HostNetwork takes the desired state of the host's side of the gateway port.
type HostNetwork interface {
	SetState(hostnet.State)
}

// RouteManager keeps the gateway port's addresses, the routes and neighbours to
// the peers, and the neighbours that are this node's pods, for every backend.
// The host never has to ask for a pod's MAC address, and never believes that of
// a pod which had the address before.
type RouteManager struct {
	node   string
	base   hostnet.State
	ways   ways
	host   HostNetwork
	nodes  map[string]*model.Node
	owners *owners
	pods   map[netip.Addr]net.HardwareAddr
	dirty  bool
	// egresses says that there are Egresses.
	egresses bool
	// unreached are the peers without a way in some family.
	unreached atomic.Pointer[[]model.Problem]
}

// Problems returns the peers whose pods have no way in some family. It may be called from any goroutine.
func (m *RouteManager) Problems() []model.Problem {
	if all := m.unreached.Load(); all != nil {
		return *all
	}
	return nil
}

// NewRouteManager returns a manager for the node of that name. It keeps base's interfaces and tables;
// addresses and peers follow the nodes. The mode decides which peers are routed to.
func NewRouteManager(node string, mode model.TrafficMode, base hostnet.State, host HostNetwork) *RouteManager {
	return &RouteManager{node: node, base: base, ways: newWays(mode), host: host, nodes: map[string]*model.Node{}, owners: newOwners(), pods: map[netip.Addr]net.HardwareAddr{}}
}

// OnUpdate takes updates of nodes and attachments.
func (m *RouteManager) OnUpdate(u model.Update) {
	for _, c := range m.owners.update(u) {
		m.dirty = true
		delete(m.pods, c.addr)
		if c.after != nil {
			m.pods[c.addr] = c.after.MAC
		}
	}
	m.dirty = m.ways.update(u) || m.dirty
	switch u := u.(type) {
	case model.NodeUpdate:
		m.nodes[u.Node.Name] = u.Node
		m.dirty = true
	case model.NodeRemove:
		delete(m.nodes, u.Name)
		m.dirty = true
	case model.EgressesUpdate:
		if now := len(u.Egresses) > 0; now != m.egresses {
			m.egresses, m.dirty = now, true
		}
	}
}

// CompleteDeferredWork sets the state if a node or an attachment changed.
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
	state.Away = m.egresses
	state.Peers = nil
	var unreached []model.Problem
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		if n := m.nodes[name]; name != m.node {
			unreached = append(unreached, m.ways.unreached(self, n)...)
			state.Peers = append(state.Peers, hostnet.Peer{
				PodCIDRs: n.PodCIDRs, Gateways: gateways(n), NodeAddresses: n.Addresses,
				Routed: m.ways.of(self, n, model.ByPeer), Left: m.ways.of(self, n, model.ByNetwork, model.NoWay),
				Encrypted: m.ways.of(self, n, model.ByWireGuard),
			})
		}
	}
	m.unreached.Store(&unreached)
	state.Pods = maps.Clone(m.pods)
	m.host.SetState(state)
}
