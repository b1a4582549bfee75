package managers

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/wireguard"
)

// EncryptedDevice takes the desired state of the WireGuard device.
type EncryptedDevice interface {
	SetState(wireguard.State)
}

// WireGuardManager keeps the peers of the WireGuard device, with the sources that each may use, for every backend.
type WireGuardManager struct {
	node   string
	key    model.PublicKey
	port   uint16
	device EncryptedDevice
	ways   ways
	nodes  map[string]*model.Node
	dirty  bool
	// own is the key that this node's object has.
	own atomic.Pointer[model.PublicKey]
}

// NewWireGuardManager returns a manager for the node of that name, whose device has the key. All nodes have one UDP port.
func NewWireGuardManager(node string, key model.PublicKey, port uint16, device EncryptedDevice) *WireGuardManager {
	return &WireGuardManager{node: node, key: key, port: port, device: device, ways: newWays(model.WireGuard), nodes: map[string]*model.Node{}}
}

// OnUpdate takes updates of nodes.
func (m *WireGuardManager) OnUpdate(u model.Update) {
	m.dirty = m.ways.update(u) || m.dirty
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
func (m *WireGuardManager) CompleteDeferredWork() {
	self := m.nodes[m.node]
	if !m.dirty || self == nil {
		return
	}
	m.dirty = false
	m.own.Store(&self.PublicKey)
	var state wireguard.State
	for _, g := range gateways(self) {
		state.Addresses = append(state.Addresses, netip.PrefixFrom(g, g.BitLen()))
	}
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[name]
		if name == m.node || len(m.ways.of(self, n, model.ByWireGuard)) == 0 {
			continue
		}
		state.Peers = append(state.Peers, wireguard.Peer{
			Key: n.PublicKey, Endpoint: netip.AddrPortFrom(self.OuterOf(n), m.port), Sources: sources(n),
		})
	}
	m.device.SetState(state)
}

// sources returns the pod prefixes and addresses that a node may use as sources. No two nodes have one of them in the model.
func sources(n *model.Node) []netip.Prefix {
	all := slices.Clone(n.PodCIDRs)
	for _, a := range n.Addresses {
		a = a.Unmap()
		if !slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return all
}

// Published returns the key that this node's object has, or the zero PublicKey; known is false before there is an object. It may be
// called from any goroutine.
func (m *WireGuardManager) Published() (key model.PublicKey, known bool) {
	if k := m.own.Load(); k != nil {
		return *k, true
	}
	return model.PublicKey{}, false
}

// Problems returns the faults of this node's own key. It may be called from any goroutine.
func (m *WireGuardManager) Problems() []model.Problem {
	key, known := m.Published()
	if !known || key == m.key {
		return nil
	}
	has := "no public key of WireGuard"
	if !key.IsZero() {
		has = "another public key"
	}
	return []model.Problem{keyProblem(m.node, fmt.Sprintf("this node's object has %s, so other nodes do not reach its pods: the annotation must be %s", has, m.key))}
}
