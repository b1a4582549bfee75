package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// Snapshot returns all that the Flushes so far have come to, in the order of
// a Flush: what somebody who joins now needs, to know what everybody else
// does. It must follow a Flush, with no change in between.
func (e *Engine) Snapshot() []model.Update {
	var all []model.Update
	for _, name := range slices.Sorted(maps.Keys(e.nodes.emitted)) {
		all = append(all, model.NodeUpdate{Node: e.nodes.emitted[name]})
	}
	for _, id := range slices.Sorted(maps.Keys(e.groups)) {
		g := e.groups[id]
		all = append(all, model.GroupUpdate{Group: g.Group, Added: g.members()})
	}
	for _, id := range slices.SortedFunc(maps.Keys(e.policies), model.PolicyID.Compare) {
		if p := e.policies[id]; p.emitted != nil {
			all = append(all, model.PolicyUpdate{Policy: p.emitted})
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(e.endpoints), model.PodID.Compare) {
		all = append(all, model.EndpointUpdate{Endpoint: e.endpoints[id].endpoint(id)})
	}
	return all
}

// PodAddresses returns the addresses of the pods of the whole cluster, but for
// those on the host's network.
func (e *Engine) PodAddresses() map[model.PodID][]netip.Addr {
	all := make(map[model.PodID][]netip.Addr, len(e.pods))
	for id, p := range e.pods {
		if len(p.addresses) > 0 {
			all[id] = p.addresses
		}
	}
	return all
}
