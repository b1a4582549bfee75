package managers

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// EndpointManager dispatches the addresses of this node's pods to the policies
// that apply to them. A pod that is attached but that the datastore does not
// know is closed: what is not known cannot be allowed.
type EndpointManager struct {
	dispatch  Dispatcher
	applied   *appliedChains
	endpoints map[model.PodID]*model.Endpoint
	owners    *owners
	// held are the chains of the pods that are attached and known.
	held       map[model.PodID]heldChains
	dirtyPods  dirty[model.PodID]
	dirtyAddrs dirty[netip.Addr]
}

type heldChains struct{ ingress, egress appliedRef }

// NewEndpointManager returns a manager without endpoints.
func NewEndpointManager(renderer *rules.Renderer, chains Chains, dispatch Dispatcher) *EndpointManager {
	return &EndpointManager{
		dispatch: dispatch, applied: newAppliedChains(renderer, chains),
		endpoints: map[model.PodID]*model.Endpoint{}, owners: newOwners(), held: map[model.PodID]heldChains{},
		dirtyPods: dirty[model.PodID]{}, dirtyAddrs: dirty[netip.Addr]{},
	}
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
		m.applied.setHasRules(u.Policy.ID, len(u.Policy.Ingress) > 0, len(u.Policy.Egress) > 0)
	case model.PolicyRemove:
		m.applied.setHasRules(u.ID, false, false)
	}
}

// CompleteDeferredWork brings dispatch and the chains behind it up to date.
func (m *EndpointManager) CompleteDeferredWork() {
	for _, id := range m.dirtyPods.take(model.PodID.Compare) {
		m.hold(id)
	}
	m.touch(m.applied.settle())
	for _, a := range m.dirtyAddrs.take(netip.Addr.Compare) {
		m.dispatchAddress(a)
	}
	m.dispatch.Complete()
	m.applied.complete()
}

// hold takes the chains that a pod needs now and gives back those it had. New
// ones are taken first, so that what stays is not rendered anew.
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
	for id, h := range m.held {
		if slices.Contains(keys, h.ingress.key) || slices.Contains(keys, h.egress.key) {
			for _, addr := range m.owners.attachment(id).Addresses {
				m.dirtyAddrs.add(addr)
			}
		}
	}
}

func (m *EndpointManager) dispatchAddress(a netip.Addr) {
	owner := m.owners.owner(a)
	if owner == nil {
		for _, d := range model.Directions() {
			m.dispatch.RemoveVerdict(d, a)
		}
		return
	}
	// The zero value, of a pod that is not known, is closed.
	h := m.held[owner.Pod]
	m.dispatch.SetVerdict(model.Ingress, a, m.applied.verdict(model.Ingress, h.ingress))
	m.dispatch.SetVerdict(model.Egress, a, m.applied.verdict(model.Egress, h.egress))
}
