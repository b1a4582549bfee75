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
	dispatch    Dispatcher
	applied     *appliedChains
	endpoints   map[model.PodID]*model.Endpoint
	attachments map[model.PodID]*model.Attachment
	dirty       dirty[model.PodID]
	// programmed is what dispatch was last told of a pod.
	programmed map[model.PodID]programmedEndpoint
	// owners lists the pods that claim an address, the newest last. While a
	// reused address has two, the newest is believed: the late removal of the
	// old pod must not hurt the new one.
	owners map[netip.Addr][]model.PodID
}

type programmedEndpoint struct {
	addresses       []netip.Addr
	ingress, egress appliedRef
}

// NewEndpointManager returns a manager without endpoints.
func NewEndpointManager(renderer *rules.Renderer, chains Chains, dispatch Dispatcher) *EndpointManager {
	return &EndpointManager{
		dispatch: dispatch, applied: newAppliedChains(renderer, chains),
		endpoints: map[model.PodID]*model.Endpoint{}, attachments: map[model.PodID]*model.Attachment{},
		dirty: dirty[model.PodID]{}, programmed: map[model.PodID]programmedEndpoint{},
		owners: map[netip.Addr][]model.PodID{},
	}
}

// OnUpdate takes updates of endpoints and attachments, and notes which
// policies have rules.
func (m *EndpointManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.EndpointUpdate:
		m.endpoints[u.Endpoint.ID] = u.Endpoint
		m.dirty.add(u.Endpoint.ID)
	case model.EndpointRemove:
		delete(m.endpoints, u.ID)
		m.dirty.add(u.ID)
	case model.AttachmentUpdate:
		m.attachments[u.Attachment.Pod] = u.Attachment
		m.dirty.add(u.Attachment.Pod)
	case model.AttachmentRemove:
		if a := m.attachments[u.Pod]; a != nil && a.Interface == u.Interface {
			delete(m.attachments, u.Pod)
			m.dirty.add(u.Pod)
		}
	case model.PolicyUpdate:
		m.applied.setHasRules(u.Policy.ID, len(u.Policy.Ingress) > 0, len(u.Policy.Egress) > 0)
	case model.PolicyRemove:
		m.applied.setHasRules(u.ID, false, false)
	}
}

// CompleteDeferredWork brings dispatch and the chains behind it up to date.
func (m *EndpointManager) CompleteDeferredWork() {
	changed := dirty[netip.Addr]{}
	for _, id := range m.dirty.take(model.PodID.Compare) {
		old, had := m.programmed[id]
		now, has := m.wanted(id)
		m.own(id, old.addresses, now.addresses)
		for _, a := range slices.Concat(old.addresses, now.addresses) {
			changed.add(a)
		}
		if has {
			m.programmed[id] = now
		} else {
			delete(m.programmed, id)
		}
		if had {
			m.applied.release(old.ingress)
			m.applied.release(old.egress)
		}
	}
	for _, a := range changed.take(netip.Addr.Compare) {
		m.dispatchAddress(a)
	}
	m.applied.complete()
}

// wanted returns what dispatch should know of a pod, holding the chains it
// needs, and false if the pod has no interface.
func (m *EndpointManager) wanted(id model.PodID) (programmedEndpoint, bool) {
	a := m.attachments[id]
	if a == nil {
		return programmedEndpoint{}, false
	}
	p := programmedEndpoint{addresses: slices.Clone(a.Addresses)}
	if e := m.endpoints[id]; e != nil {
		p.ingress = m.applied.hold(model.Ingress, e.Ingress)
		p.egress = m.applied.hold(model.Egress, e.Egress)
	}
	return p, true
}

// own records which addresses a pod gives up and takes. One that it keeps
// keeps its place: an update of the old owner does not make it the newest.
func (m *EndpointManager) own(id model.PodID, old, now []netip.Addr) {
	for _, a := range old {
		if slices.Contains(now, a) {
			continue
		}
		owners := slices.DeleteFunc(m.owners[a], func(o model.PodID) bool { return o == id })
		if len(owners) == 0 {
			delete(m.owners, a)
			continue
		}
		m.owners[a] = owners
	}
	for _, a := range now {
		if !slices.Contains(old, a) {
			m.owners[a] = append(m.owners[a], id)
		}
	}
}

func (m *EndpointManager) dispatchAddress(a netip.Addr) {
	owners := m.owners[a]
	if len(owners) == 0 {
		for _, d := range model.Directions() {
			m.dispatch.RemoveVerdict(d, a)
		}
		return
	}
	p := m.programmed[owners[len(owners)-1]]
	m.dispatch.SetVerdict(model.Ingress, a, p.ingress.verdictOrDrop())
	m.dispatch.SetVerdict(model.Egress, a, p.egress.verdictOrDrop())
}
