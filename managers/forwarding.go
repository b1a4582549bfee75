package managers

import (
	"net/netip"
	"strings"

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
	attachments map[string]*model.Attachment
	dirty       dirty[string]
	selfDirty   bool
}

// NewForwardingManager returns a manager for the node of that name, whose
// bridge has the given ports; the node's addresses come with its NodeUpdate.
func NewForwardingManager(node string, bridge pipeline.Node, flows Flows) *ForwardingManager {
	return &ForwardingManager{
		bridge: bridge, node: node, flows: flows,
		attachments: map[string]*model.Attachment{}, dirty: dirty[string]{},
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
		m.attachments[u.Attachment.Interface] = u.Attachment
		m.dirty.add(u.Attachment.Interface)
	case model.AttachmentRemove:
		delete(m.attachments, u.Interface)
		m.dirty.add(u.Interface)
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
		for name := range m.attachments {
			m.dirty.add(name)
		}
		m.selfDirty = false
	}
	for _, name := range m.dirty.take(strings.Compare) {
		if a := m.attachments[name]; a != nil {
			m.flows.SetFlows("port/"+name, pipeline.Endpoint(node, a))
		} else {
			m.flows.RemoveFlows("port/" + name)
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
