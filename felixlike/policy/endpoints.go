package policy

import (
	"cmp"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// endpointStore computes the endpoints of this node: for each local pod, the policies that
// apply to it.
type endpointStore struct {
	work  *Work
	dirty *dirtyRecords
	pods  *podStore
	// emitted are the endpoints of the last Flush.
	emitted map[model.PodID]*applied
	// changed is set once an endpoint may have changed, and the staged policies with it.
	changed bool
	// unapplied are the lists of pods without policies.
	unapplied *applied
}

// enforced lists the policies of selections that are enforced.
func (x *endpointStore) enforced(targets ...*selection) *applied {
	return x.list(targets, func(p *policy) bool { return !p.compiled.Staged })
}

// list lists the policies of selections that a function chooses.
func (x *endpointStore) list(targets []*selection, chosen func(*policy) bool) *applied {
	var all [3][]*policy
	var listed smallmap.Set[*policy]
	for i, s := range targets {
		for p := range s.policies.All() {
			if !chosen(p) {
				continue
			}
			if len(p.targets) > 1 {
				if i > 0 && listed.Has(p) {
					continue // it has several targets
				}
				listed.Add(p)
			}
			tier := &all[p.id.Tier-model.TierAdmin]
			*tier = append(*tier, p)
		}
	}
	a := &applied{}
	for i, policies := range all {
		slices.SortFunc(policies, inOrder)
		ingress, egress := directed(policies)
		x.work.Listed += uint64(len(ingress) + len(egress))
		switch model.TierAdmin + model.Tier(i) {
		case model.TierAdmin:
			a.ingress.Admin, a.egress.Admin = ingress, egress
		case model.TierNetworkPolicy:
			a.ingress.NetworkPolicies, a.egress.NetworkPolicies = ingress, egress
		case model.TierBaseline:
			a.ingress.Baseline, a.egress.Baseline = ingress, egress
		}
	}
	return a
}

// inOrder compares policies by their order of evaluation. NetworkPolicies have no
// precedence.
func inOrder(a, b *policy) int {
	return cmp.Or(a.compiled.Model.Precedence.Compare(b.compiled.Model.Precedence), a.id.Compare(b.id))
}

// directed lists the policies that apply in each direction. Equal lists share memory.
func directed(policies []*policy) (ingress, egress []model.PolicyID) {
	for _, p := range policies {
		if p.compiled.Ingress {
			ingress = append(ingress, p.id)
		}
		if p.compiled.Egress {
			egress = append(egress, p.id)
		}
	}
	if slices.Equal(ingress, egress) {
		egress = ingress
	}
	return slices.Clip(ingress), slices.Clip(egress)
}

// targets returns the selections of the class that have policies.
func (c *class) targets() (all []*selection) {
	for s := range c.selections.All() {
		if s.policies.Len() > 0 {
			all = append(all, s)
		}
	}
	return all
}

// appliedTo returns the policies that apply to the pods of a class.
func (x *endpointStore) appliedTo(c *class) *applied {
	if !c.stale {
		return c.applied
	}
	c.stale = false
	targets := c.targets()
	var now *applied
	switch len(targets) {
	case 0:
		now = x.unapplied
	case 1:
		s := targets[0]
		if s.applied == nil {
			s.applied = x.enforced(s)
		}
		now = s.applied
	default:
		now = x.enforced(targets...)
	}
	// Equal lists keep the old pointer, so that they compare fast.
	if c.applied == nil || !c.applied.equal(now) {
		c.applied = now
	}
	return c.applied
}

func (x *endpointStore) flush() (updates, removals []model.Update) {
	x.dirty.resolveTargets()
	dirty := x.dirty.pods
	x.dirty.pods = nil
	x.changed = x.changed || len(dirty) > 0
	slices.SortFunc(dirty, func(a, b *pod) int { return a.id.Compare(b.id) })
	for i, p := range dirty {
		p.dirty = false
		// A pod that was deleted and created again is dirty twice.
		if i > 0 && dirty[i-1].id == p.id {
			continue
		}
		x.work.Endpoints++
		before, known := x.emitted[p.id]
		current := x.pods.byID[p.id]
		if current == nil || !current.endpoint() {
			if known {
				delete(x.emitted, p.id)
				removals = append(removals, model.EndpointRemove{ID: p.id})
			}
			continue
		}
		now := x.appliedTo(current.class)
		x.emitted[p.id] = now
		if !known || !before.equal(now) {
			updates = append(updates, model.EndpointUpdate{Endpoint: now.endpoint(p.id)})
		}
	}
	return updates, removals
}
