package managers

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// ForwardingManager keeps the flows of this node itself and of its pods'
// ports, for every backend.
type ForwardingManager struct {
	bridge      pipeline.Node
	node        string
	flows       Flows
	self        *model.Node
	attachments map[model.PodID]*model.Attachment
	owners      *owners
	dirty       dirty[model.PodID]
	tiers       tierUse
	// led are the tiers whose tables the flows that were set last lead packets through.
	led      Tiers
	services servicePrefixes
	// inBridge has the flows of Services that the bridge leads to.
	inBridge *switchServices
	// snat has the ports of translation by the switch; nil without it. outside is the next hop to the outside.
	snat     *pipeline.SNAT
	outside  model.Hop
	egresses []model.EgressAddress
	// unroutable is why translated packets do not leave; nil if they do.
	unroutable atomic.Pointer[model.Problem]
	// baseDirty is true if a common input of all pods' flows has changed.
	baseDirty bool
}

// NewForwardingManager returns a manager for the node of that name. bridge has the
// ports and settings of its bridge. The node's addresses come with its NodeUpdate and
// HostAddressesUpdate, and more prefixes of Services with a ServiceCIDRsUpdate.
func NewForwardingManager(node string, bridge pipeline.Node, flows Flows) *ForwardingManager {
	services := newServicePrefixes(bridge.ServiceCIDRs)
	bridge.ServiceCIDRs = services.all
	snat := bridge.SNAT
	bridge.SNAT = nil
	return &ForwardingManager{
		inBridge: newSwitchServices(flows), snat: snat, bridge: bridge, node: node, flows: flows, services: services,
		attachments: map[model.PodID]*model.Attachment{}, owners: newOwners(), dirty: dirty[model.PodID]{},
		tiers: newTierUse(),
	}
}

// SetMode chooses the pipeline. The next CompleteDeferredWork sets all flows
// that differ, so that one apply, which is one bundle, changes over.
func (m *ForwardingManager) SetMode(mode pipeline.Mode) {
	if m.bridge.Mode != mode {
		m.bridge.Mode, m.baseDirty = mode, true
	}
}

// OnUpdate takes this node's NodeUpdate and HostAddressesUpdate, an OffloadUpdate, the prefixes of
// Services, ports of Services, updates of attachments, and of policies those of ordered tiers.
func (m *ForwardingManager) OnUpdate(u model.Update) {
	for _, c := range m.owners.update(u) {
		for _, a := range []*model.Attachment{c.before, c.after} {
			if a != nil {
				m.dirty.add(a.Pod)
			}
		}
	}
	m.inBridge.update(u)
	switch u := u.(type) {
	case model.NodeUpdate:
		if u.Node.Name == m.node {
			m.self, m.baseDirty = u.Node, true
		}
	case model.HostAddressesUpdate:
		if !slices.Equal(m.bridge.HostAddresses, u.Addresses) {
			m.bridge.HostAddresses, m.baseDirty = slices.Clone(u.Addresses), true
		}
	case model.ServiceCIDRsUpdate:
		if m.services.set(u.Prefixes) {
			m.bridge.ServiceCIDRs, m.baseDirty = m.services.all, true
		}
	case model.OffloadUpdate:
		if m.bridge.Offload != u.Active {
			m.bridge.Offload, m.baseDirty = u.Active, true
		}
	case model.HopsUpdate:
		m.setOutside(u.Hops)
	case model.EgressesUpdate:
		m.egresses, m.baseDirty = u.Egresses, m.baseDirty || m.snat != nil
	case model.PolicyUpdate, model.PolicyRemove:
		m.tiers.update(u)
		if t := m.tiers.tiers(); t != (Tiers{m.bridge.AdminIngress, m.bridge.OrderedEgress}) {
			m.bridge.AdminIngress, m.bridge.OrderedEgress, m.baseDirty = t.AdminIngress, t.OrderedEgress, true
		}
	case model.AttachmentUpdate:
		// A pod's new interface replaces one that is still to be removed.
		m.attachments[u.Attachment.Pod] = u.Attachment
		m.dirty.add(u.Attachment.Pod)
	case model.AttachmentRemove:
		if a := m.attachments[u.Pod]; a != nil && a.Interface == u.Interface {
			delete(m.attachments, u.Pod)
			m.dirty.add(u.Pod)
		}
	}
}

// Forwards implements Forwarding.
func (m *ForwardingManager) Forwards(a *model.Attachment) bool {
	now := m.attachments[a.Pod]
	return now != nil && sameFlows(now, a)
}

// Led implements Forwarding.
func (m *ForwardingManager) Led() Tiers { return m.led }

// CompleteDeferredWork sets the flows that changed. It waits for this node to
// be known: before that nothing is forwarded.
func (m *ForwardingManager) CompleteDeferredWork() {
	if m.self == nil {
		return
	}
	node := withNode(m.bridge, m.self)
	m.inBridge.complete(node)
	if m.baseDirty {
		node.SNAT = m.translation()
		m.flows.SetFlows("base", func() []openflow.Flow { return pipeline.Base(node) })
		for id := range m.attachments {
			m.dirty.add(id)
		}
		m.baseDirty, m.led = false, Tiers{node.AdminIngress, node.OrderedEgress}
	}
	for _, id := range m.dirty.take(model.PodID.Compare) {
		if a := m.attachments[id]; a != nil {
			a = m.forwarded(a)
			m.flows.SetFlows("pod "+id.String(), func() []openflow.Flow { return pipeline.Endpoint(node, a) })
		} else {
			m.flows.RemoveFlows("pod " + id.String())
		}
	}
}

// forwarded returns the attachment as it is forwarded. Two pods may have one address for a while.
// Where the switch judges, and with offload, the newest pod has the flows of the address: flows of
// both pods would have the same match. The spoofguard then drops packets from the address of the older pod.
func (m *ForwardingManager) forwarded(a *model.Attachment) *model.Attachment {
	if m.bridge.Mode == pipeline.Steer && !m.bridge.Switches() {
		return a
	}
	own := *a
	own.Addresses = slices.DeleteFunc(slices.Clone(a.Addresses), func(addr netip.Addr) bool {
		owner := m.owners.owner(addr)
		return owner != nil && owner.Pod != a.Pod
	})
	return &own
}

// withNode completes the bridge's ports with the node's pod prefixes and the
// gateway addresses that follow from them.
func withNode(bridge pipeline.Node, n *model.Node) pipeline.Node {
	bridge.Gateways, bridge.PodCIDRs = gateways(n), n.PodCIDRs
	return bridge
}

func gateways(n *model.Node) []netip.Addr {
	var all []netip.Addr
	for _, f := range model.Families() {
		if g := n.Gateway(f); g.IsValid() {
			all = append(all, g)
		}
	}
	return all
}
