package quarantine

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// concerned finds the pods and policies that an object of the dataplane concerns, by the
// object's origin. It is valid until the model changes.
type concerned struct {
	model *cluster.Model
	// pods has the pods of this node by the origins of the chains that their packets pass.
	pods map[tables.Origin][]model.PodID
	// addresses has the pod of an address.
	addresses map[netip.Addr]model.PodID
	// users has the policies that use a group.
	users map[model.GroupID][]model.PolicyID
}

func newConcerned(t *cluster.Model) *concerned {
	c := &concerned{
		model: t, pods: map[tables.Origin][]model.PodID{}, addresses: map[netip.Addr]model.PodID{},
		users: map[model.GroupID][]model.PolicyID{},
	}
	for _, id := range slices.SortedFunc(maps.Keys(t.Policies), model.PolicyID.Compare) {
		for _, g := range groupsOf(t.Policies[id]) {
			c.users[g] = append(c.users[g], id)
		}
	}
	for _, id := range t.Pods() {
		a, e := t.Attachments[id], t.Endpoints[id]
		if a == nil || e == nil {
			continue
		}
		for _, addr := range a.Addresses {
			c.addresses[addr] = id
		}
		for _, o := range append(originsOf(e), tables.OfPod{ID: id}, tables.OfEveryPod{}) {
			c.pods[o] = append(c.pods[o], id)
		}
	}
	return c
}

// originsOf returns the origins of the chains that packets of an endpoint, but not of all
// endpoints, pass: those of its lists of policies, and of the policies.
func originsOf(e *model.Endpoint) []tables.Origin {
	var all []tables.Origin
	for _, d := range model.Directions() {
		applied := e.Applied(d)
		if !applied.Empty() {
			all = append(all, tables.OfList{Identity: rules.AppliedIdentity(d, applied)})
		}
		if len(applied.Admin) > 0 {
			all = append(all, tables.OfList{Identity: rules.AppliedIdentity(d, model.Applied{Admin: applied.Admin}), Admin: true})
		}
		if own := rules.OwnNode(applied); d == model.Egress && !own.Empty() {
			all = append(all, tables.OfList{Identity: rules.AppliedIdentity(d, own), OwnNode: true})
		}
		for id := range applied.All() {
			all = append(all, tables.OfPolicy{ID: id, Direction: d})
		}
	}
	return all
}

func groupsOf(p *model.Policy) []model.GroupID {
	var all []model.GroupID
	for _, d := range model.Directions() {
		for _, r := range p.Rules(d) {
			all = append(append(all, r.Peers...), r.NamedPorts...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// owners returns the objects that a refused one was made of, and a description of it. Chains
// that packets of every pod pass have no owners.
func (c *concerned) owners(r tables.Refusal) (owners []model.ObjectRef, description string) {
	switch o := r.Origin.(type) {
	case tables.OfPolicy:
		if c.model.Policies[o.ID] != nil {
			owners = append(owners, o.ID.Object())
		}
		return owners, ""
	case tables.OfGroup:
		for _, id := range c.users[o.ID] {
			owners = append(owners, id.Object())
		}
		owners = slices.Compact(owners) // parts of one object are neighbours
		if g, known := c.model.Groups[o.ID]; known {
			description = g.Kind.String() + " of " + g.Description
		}
		return owners, description
	case tables.OfEveryPod:
		return nil, "evaluated for every pod"
	}
	of := []tables.Origin{r.Origin}
	if r.Object == managers.ObjectList {
		// Other pods with the list have a chain.
		of = r.ClosedOf
	}
	for _, id := range c.podsOf(of) {
		owners = append(owners, id.Ref())
	}
	if _, list := r.Origin.(tables.OfList); list && len(owners) > 0 {
		description = "shared by the pods with one list of policies"
	}
	return owners, description
}

// closedBy returns the pods whose packets a refused object drops.
func (c *concerned) closedBy(r tables.Refusal) []model.PodID {
	of := r.ClosedOf
	if r.Object == "map" {
		// Without its entry, an address is that of no endpoint.
		of = append(slices.Clone(of), r.Origin)
	}
	return c.podsOf(of)
}

// podsOf returns the pods whose packets pass objects of these origins, sorted.
func (c *concerned) podsOf(origins []tables.Origin) []model.PodID {
	var all []model.PodID
	for _, origin := range origins {
		if o, ok := origin.(tables.OfAddresses); ok {
			for addr, id := range c.addresses {
				if o.Prefix.Contains(addr) {
					all = append(all, id)
				}
			}
			continue
		}
		all = append(all, c.pods[origin]...)
	}
	slices.SortFunc(all, model.PodID.Compare)
	return slices.Compact(all)
}
