package managers

import (
	"net/netip"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers/grants"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// EndpointManager dispatches the addresses of this node's pods to the policies that
// apply to them. A pod that is attached but unknown to the datastore is closed, because
// its policies are unknown.
type EndpointManager struct {
	dispatch  Dispatcher
	applied   *appliedChains
	endpoints map[model.PodID]*model.Endpoint
	owners    *owners
	// held are the chains of the pods that are attached and known.
	held map[model.PodID]heldChains
	// placed are the chains that addresses are dispatched to.
	placed     map[netip.Addr]heldChains
	dirtyPods  dirty[model.PodID]
	dirtyAddrs dirty[netip.Addr]
}

type heldChains struct{ ingress, egress appliedRef }

// NewEndpointManager returns a manager without endpoints.
func NewEndpointManager(renderer *rules.Renderer, chains Chains, sets ipsets.Sets, dispatch Dispatcher) *EndpointManager {
	return &EndpointManager{
		dispatch: dispatch, applied: newAppliedChains(renderer, chains, sets),
		placed: map[netip.Addr]heldChains{}, endpoints: map[model.PodID]*model.Endpoint{}, owners: newOwners(), held: map[model.PodID]heldChains{},
		dirtyPods: dirty[model.PodID]{}, dirtyAddrs: dirty[netip.Addr]{},
	}
}

// SetCommonFrom replaces CommonFrom: tests make it small. It must be called before the
// first update.
func (m *EndpointManager) SetCommonFrom(visits int) { m.applied.common.from = visits }

// UseGrants leaves the lists of policies to grants that these have. It must be called before the first update.
func (m *EndpointManager) UseGrants(g *grants.Grants) { m.applied.grants = g }

// LeaveCommonChains has each chain ask its policies itself from now on, and reports
// whether that changes any. It is for a driver that has refused an object: it closes
// the chains that lead to the object, and a common chain is that of all pods. The
// manager stays so until the agent restarts: the object may be a set of a common
// chain, which would be refused again.
func (m *EndpointManager) LeaveCommonChains() bool {
	if m.applied.refused {
		return false
	}
	m.applied.refused = true
	changes := len(m.applied.common.chosen) > 0
	m.CompleteDeferredWork()
	return changes
}

// OnUpdate takes updates of endpoints and attachments, and notes which
// policies have rules.
func (m *EndpointManager) OnUpdate(u model.Update) {
	for _, c := range m.owners.update(u) {
		m.dirtyAddrs.add(c.addr)
	}
	switch u := u.(type) {
	case model.EndpointUpdate:
		m.endpoints[u.Endpoint.ID] = u.Endpoint
		m.dirtyPods.add(u.Endpoint.ID)
	case model.EndpointRemove:
		delete(m.endpoints, u.ID)
		m.dirtyPods.add(u.ID)
	case model.AttachmentUpdate:
		m.dirtyPods.add(u.Attachment.Pod)
	case model.AttachmentRemove:
		m.dirtyPods.add(u.Pod)
	case model.PolicyUpdate:
		m.applied.setRules(u.Policy.ID, u.Policy)
	case model.PolicyRemove:
		m.applied.setRules(u.ID, nil)
	}
}

// CompleteDeferredWork brings dispatch and the chains behind it up to date.
func (m *EndpointManager) CompleteDeferredWork() {
	for _, id := range m.dirtyPods.take(model.PodID.Compare) {
		m.hold(id)
	}
	m.touch(m.applied.settle())
	m.dispatchAddresses()
	m.touch(m.applied.choose())
	m.dispatchAddresses()
	m.dispatch.Complete()
	m.applied.complete()
}

// hold takes references to the chains that a pod needs now and releases its old ones.
// It takes the new ones first, so that a chain in both is not rendered again.
func (m *EndpointManager) hold(id model.PodID) {
	old, had := m.held[id]
	e, a := m.endpoints[id], m.owners.attachment(id)
	if e != nil && a != nil {
		m.held[id] = heldChains{
			ingress: m.applied.hold(model.Ingress, e.Ingress), egress: m.applied.hold(model.Egress, e.Egress),
		}
	} else {
		delete(m.held, id)
	}
	if had {
		m.applied.release(old.ingress)
		m.applied.release(old.egress)
	}
	if a != nil {
		for _, addr := range a.Addresses {
			m.dirtyAddrs.add(addr)
		}
	}
}

// touch has the addresses dispatched anew of the pods that hold chains.
func (m *EndpointManager) touch(keys []string) {
	if len(keys) == 0 {
		return
	}
	concerned := map[string]bool{}
	for _, key := range keys {
		concerned[key] = true
	}
	for id, h := range m.held {
		if concerned[h.ingress.key] || concerned[h.egress.key] {
			for _, addr := range m.owners.attachment(id).Addresses {
				m.dirtyAddrs.add(addr)
			}
		}
	}
}

func (m *EndpointManager) dispatchAddresses() {
	for _, a := range m.dirtyAddrs.take(netip.Addr.Compare) {
		m.dispatchAddress(a)
	}
}

func (m *EndpointManager) dispatchAddress(a netip.Addr) {
	owner := m.owners.owner(a)
	// The zero value, of a pod that is not known, is closed.
	var h heldChains
	if owner != nil {
		h = m.held[owner.Pod]
	}
	if was := m.placed[a]; was != h {
		m.applied.place(was.ingress, model.Ingress, a, false)
		m.applied.place(was.egress, model.Egress, a, false)
		m.placed[a] = h
	}
	if owner == nil {
		delete(m.placed, a)
		for _, d := range model.Directions() {
			m.dispatch.RemoveVerdict(d, a)
		}
		return
	}
	m.dispatch.SetVerdict(model.Ingress, a, m.applied.place(h.ingress, model.Ingress, a, true))
	m.dispatch.SetVerdict(model.Egress, a, m.applied.place(h.egress, model.Egress, a, true))
}
