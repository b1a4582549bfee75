package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// Snapshot returns the whole model as updates, in the order of Flush, for a client that
// begins now. It must follow a Flush, with no change in between.
func (e *Engine) Snapshot() []model.Update {
	var all []model.Update
	for _, name := range slices.Sorted(maps.Keys(e.nodes.emitted)) {
		all = append(all, model.NodeUpdate{Node: e.nodes.emitted[name]})
	}
	if len(e.egresses.emitted) > 0 {
		all = append(all, model.EgressesUpdate{Egresses: e.egresses.emitted})
	}
	for _, id := range slices.Sorted(maps.Keys(e.groups.byID)) {
		g := e.groups.byID[id]
		all = append(all, model.GroupUpdate{Group: g.Group, Added: g.sortedMembers()})
	}
	for _, id := range slices.SortedFunc(maps.Keys(e.policies.byID), model.PolicyID.Compare) {
		if p := e.policies.byID[id]; p.emitted != nil && !p.ofHost {
			all = append(all, model.PolicyUpdate{Policy: p.emitted})
		}
	}
	if e.hosts.emitted != nil && !e.hosts.emitted.Empty() {
		all = append(all, model.HostPoliciesUpdate{Policies: e.hosts.current(e.groups.byID)})
	}
	for _, id := range slices.SortedFunc(maps.Keys(e.endpoints.emitted), model.PodID.Compare) {
		all = append(all, model.EndpointUpdate{Endpoint: e.endpoints.emitted[id].endpoint(id)})
	}
	return all
}

// MembersAt returns the members of a group that match an address, or an address with a port. It looks each up, so
// it costs the same at any size of the group.
func (e *Engine) MembersAt(id model.GroupID, a netip.Addr, protocol model.Protocol, port uint16) []model.Member {
	g := e.groups.byID[id]
	if g == nil {
		return nil
	}
	var all []model.Member
	add := func(m model.Member) {
		if g.counts.Has(m) {
			all = append(all, m)
		}
	}
	a = a.Unmap()
	single := model.AddressMember(a)
	switch g.Kind {
	case model.AddressPorts:
		single.Protocol, single.Port = protocol, port
		add(single)
	case model.Networks:
		for bits := range a.BitLen() + 1 {
			prefix := netip.PrefixFrom(a, bits).Masked()
			add(model.Member{Prefix: prefix})
			add(model.Member{Prefix: prefix, Except: true})
		}
	default:
		add(single)
	}
	return all
}

// PodAddresses returns the addresses of all pods of the cluster, except those in the
// network of their host.
func (e *Engine) PodAddresses() map[model.PodID][]netip.Addr {
	all := make(map[model.PodID][]netip.Addr, len(e.pods.byID))
	for id, p := range e.pods.byID {
		if len(p.addresses) > 0 {
			all[id] = p.addresses
		}
	}
	return all
}

// AwaitsNamespace reports whether the namespace's object is not known yet and namespaces are isolated, or a
// ClusterNetworkPolicy or an Egress may select its pods. Until the object is known, no namespace selector
// matches these pods, so a Deny would miss them, and their packets would have another source address.
func (e *Engine) AwaitsNamespace(name string) bool {
	n := e.index.namespaces[name]
	return (e.isolation.on || len(e.clusterPolicies)+e.antrea.clusterPolicies+len(e.egresses.byID) > 0) && (n == nil || n.labels == nil)
}

// HostNetworkTargets returns, by NetworkPolicy, the pods in the network of their host that its selector matches, sorted; if
// not all are wanted, the first of them. Policy does not apply to them, which their owners may not expect. It visits only
// these policies and pods.
func (e *Engine) HostNetworkTargets(all bool) map[model.PolicyID][]model.PodID {
	return e.policies.hostTargets(all)
}

// UnresolvedPorts returns, by object, the named ports of its policies that no pod of the rules declares, sorted, as of the last
// Flush. It visits only policies that apply to endpoints of this node. A NetworkPolicy's rules allow nothing to these
// ports, and their authors may not expect this.
func (e *Engine) UnresolvedPorts() map[model.ObjectRef][]string { return e.policies.unresolvedPorts() }

// Egresses returns the part of the engine that knows the Egresses.
func (e *Engine) Egresses() Egresses { return Egresses{e.egresses} }

// Egresses is the part of an Engine that knows the Egresses.
type Egresses struct{ store *egressStore }

// Addresses returns the Egresses as of the last Flush.
func (x Egresses) Addresses() []model.EgressAddress { return x.store.emitted }

// PoolUsages returns the usage of all pools of felixlike's own API, by name. Used are the addresses of the pool that an Egress with the pool has been allocated, or
// names.
func (x Egresses) PoolUsages() []PoolUsage { return x.store.poolUsages() }

// SetLeases sets the Leases by egress address. They name the elected nodes, and the owners of addresses from pools. There are no elections before the
// first call.
func (x Egresses) SetLeases(leases map[netip.Addr]model.EgressLease) { x.store.setLeases(leases) }

// ElectHolders reports whether an Egress leaves its node to an election.
func (x Egresses) ElectHolders() bool { return x.store.elects() }

// NodeProblems returns the addresses and pod CIDRs that nodes claim and do not own, as of the last Flush.
func (e *Engine) NodeProblems() []model.Problem { return e.nodes.owns.problems }

// AntreaProblems returns the invalid parts of the objects of Antrea's API, in order, then those of NetNamespaces, of EgressNetworkPolicies, of pools, and of Egresses with
// their conflicts as of the last Flush.
func (e *Engine) AntreaProblems() []model.Problem {
	e.antrea.resolve()
	var all []model.Problem
	for _, id := range slices.SortedFunc(maps.Keys(e.antrea.problems), antrea.ID.Compare) {
		all = append(all, e.antrea.problems[id]...)
	}
	return slices.Concat(all, e.isolation.problems(), e.egressPolicies.problems(), e.egresses.problemsOf())
}

// Collisions returns a problem for each policy that is closed because one of its groups has
// the identifier of another group, in order.
func (e *Engine) Collisions() []model.Problem { return e.policies.problems() }

// Work returns the operations so far.
func (e *Engine) Work() Work { return *e.work }
