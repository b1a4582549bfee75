package managers

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// FrameManager keeps the table that drops what netfilter would not judge at the bridges of another CNI plugin
// (rules.Frames).
type FrameManager struct {
	chains Chains
	// ports are the interfaces of pods at a bridge.
	ports map[string]bool
	dirty bool
}

// NewFrameManager returns a manager without pods.
func NewFrameManager(chains Chains) *FrameManager {
	return &FrameManager{chains: chains, ports: map[string]bool{}, dirty: true}
}

// OnUpdate takes updates of attachments.
func (m *FrameManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.AttachmentUpdate:
		m.set(u.Attachment.Interface, u.Attachment.Bridge != "")
	case model.AttachmentRemove:
		m.set(u.Interface, false)
	}
}

func (m *FrameManager) set(port string, bridged bool) {
	if m.ports[port] == bridged {
		return
	}
	m.dirty = true
	if bridged {
		m.ports[port] = true
	} else {
		delete(m.ports, port)
	}
}

// CompleteDeferredWork sets the chain if the ports changed.
func (m *FrameManager) CompleteDeferredWork() {
	if m.dirty {
		m.dirty = false
		m.chains.UpdateChain(rules.Frames(slices.Sorted(maps.Keys(m.ports))))
	}
}

// Needed reports whether a pod is at a bridge.
func (m *FrameManager) Needed() bool { return len(m.ports) > 0 }
