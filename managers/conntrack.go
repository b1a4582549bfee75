package managers

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// Conntrack deletes the connections of addresses.
type Conntrack interface {
	Forget(netip.Addr)
}

// ConntrackManager sees to it that a pod does not inherit the established
// connections of the pod that had its address before: they would pass its
// policy. It serves every backend that decides in netfilter.
type ConntrackManager struct {
	conntrack Conntrack
	owners    *owners
}

// NewConntrackManager returns a manager without attachments.
func NewConntrackManager(conntrack Conntrack) *ConntrackManager {
	return &ConntrackManager{conntrack: conntrack, owners: newOwners()}
}

// OnUpdate takes updates of attachments. The first owner of an address that
// this process sees has nothing to forget: after a restart of the agent, the
// pods' connections are their own.
func (m *ConntrackManager) OnUpdate(u model.Update) {
	for _, c := range m.owners.update(u) {
		if c.before != nil {
			m.conntrack.Forget(c.addr)
		}
	}
}

// CompleteDeferredWork does nothing.
func (m *ConntrackManager) CompleteDeferredWork() {}
