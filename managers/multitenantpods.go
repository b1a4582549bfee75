package managers

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/multitenant"
)

// limits returns the objects that would limit a pod and are not in force.
func (m *MultitenantManager) limits(a *model.Attachment) (all []model.ObjectRef) {
	e := m.endpoints[a.Pod]
	if e == nil {
		return nil
	}
	add := func(ref model.ObjectRef) {
		if !slices.Contains(all, ref) {
			all = append(all, ref)
		}
	}
	for _, d := range model.Directions() {
		for id := range e.Applied(d).All() {
			if id.API != model.Isolation {
				add(id.Object())
			}
		}
	}
	for _, address := range a.Addresses {
		if ref, selected := m.egresses[address]; selected {
			add(ref)
		}
	}
	return all
}

// addressesOf returns the addresses at which a pod has flows: the newest pod with an address has its flows.
func (m *MultitenantManager) addressesOf(a *model.Attachment) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a.Addresses), func(addr netip.Addr) bool {
		owner := m.owners.owner(addr)
		return owner != nil && owner.Pod != a.Pod || !m.options.Cluster.Contains(addr.Unmap())
	})
}

// closed says why an attached pod has no flows; "" if it has, or the datastore does not know it.
func (m *MultitenantManager) closed(a *model.Attachment) string {
	limits := m.limits(a)
	switch {
	case len(limits) > 0:
		return limits[0].String() + " selects it, which is not in force with pipelineVariant: openshift"
	case m.newest[a.OFPort] != a.Pod: // a port that has a new interface is no longer the port of the pod before
		return "another pod has its port of the bridge"
	case m.tenants[a.Pod.Namespace] == (multitenant.Tenant{}):
		return "no NetNamespace gives its namespace a number"
	case len(m.addressesOf(a)) == 0:
		return "another pod has its address, or it is not in clusterCIDR"
	}
	return ""
}

// Closed returns why pods of this node have no flows. It may be called from any goroutine.
func (m *MultitenantManager) Closed() map[model.PodID]string {
	if all := m.closing.Load(); all != nil {
		return *all
	}
	return nil
}

// judgePods notes the pods of this node that are closed, and the objects that close some.
func (m *MultitenantManager) judgePods() {
	objects, closing := map[model.ObjectRef]bool{}, map[model.PodID]string{}
	for _, pods := range m.members {
		for id := range pods {
			a := m.owners.attachment(id)
			if a == nil {
				continue
			}
			for _, ref := range m.limits(a) {
				objects[ref] = true
			}
			if why := m.closed(a); why != "" {
				closing[id] = why
			}
		}
	}
	var refused []model.Problem
	for ref := range objects {
		refused = append(refused, model.Problem{Object: ref, Reason: "it is not in force with pipelineVariant: openshift: the pods that it selects are closed"})
	}
	slices.SortFunc(refused, func(a, b model.Problem) int { return strings.Compare(a.Object.String(), b.Object.String()) })
	m.refused.Store(&refused)
	m.closing.Store(&closing)
}
