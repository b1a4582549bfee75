package managers

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
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
	dirty       dirty[model.PodID]
	selfDirty   bool
}

// NewForwardingManager returns a manager for the node of that name, whose
// bridge has the given ports; the node's addresses come with its NodeUpdate.
func NewForwardingManager(node string, bridge pipeline.Node, flows Flows) *ForwardingManager {
	return &ForwardingManager{
		bridge: bridge, node: node, flows: flows,
		attachments: map[model.PodID]*model.Attachment{}, dirty: dirty[model.PodID]{},
	}
}

// OnUpdate takes this node's NodeUpdate and updates of attachments.
func (m *ForwardingManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		if u.Node.Name == m.node {
			m.self, m.selfDirty = u.Node, true
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

// CompleteDeferredWork sets the flows that changed. It waits for this node to
// be known: before that nothing is forwarded.
func (m *ForwardingManager) CompleteDeferredWork() {
	if m.self == nil {
		return
	}
	node := withGateways(m.bridge, m.self)
	if m.selfDirty {
		m.flows.SetFlows("base", pipeline.Base(node))
		for id := range m.attachments {
			m.dirty.add(id)
		}
		m.selfDirty = false
	}
	for _, id := range m.dirty.take(model.PodID.Compare) {
		if a := m.attachments[id]; a != nil {
			m.flows.SetFlows("pod "+id.String(), pipeline.Endpoint(node, a))
		} else {
			m.flows.RemoveFlows("pod " + id.String())
		}
	}
}

// withGateways completes the bridge's ports with the gateway addresses that
// follow from the node's pod prefixes.
func withGateways(bridge pipeline.Node, n *model.Node) pipeline.Node {
	bridge.Gateways = gateways(n)
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
