package policy

import (
	"cmp"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// applied lists the policies that apply to a pod in each direction. It is
// never changed, and shared: 10,000 pods under 10,000 policies would have
// lists of 8 GB otherwise.
type applied struct{ ingress, egress model.Applied }

func (a *applied) equal(o *applied) bool {
	return a == o || a.ingress.Equal(o.ingress) && a.egress.Equal(o.egress)
}

// endpoint returns the endpoint of a pod that these apply to.
func (a *applied) endpoint(id model.PodID) *model.Endpoint {
	return &model.Endpoint{ID: id, Ingress: a.ingress, Egress: a.egress}
}

// list lists the policies of selections.
func (e *Engine) list(targets ...*selection) *applied {
	var all [3][]*policy
	for _, s := range targets {
		for p := range s.policies.All() {
			tier := &all[p.id.Tier-model.TierAdmin]
			*tier = append(*tier, p)
		}
	}
	a := &applied{}
	for i, policies := range all {
		slices.SortFunc(policies, inOrder)
		ingress, egress := directed(policies)
		e.work.Listed += uint64(len(ingress) + len(egress))
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

// directed lists the policies that apply in each direction. Equal lists are one.
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

// appliedTo returns the policies that apply to the pods of a class.
func (e *Engine) appliedTo(c *class) *applied {
	if !c.stale {
		return c.applied
	}
	c.stale = false
	var targets []*selection
	for s := range c.selections.All() {
		if s.policies.Len() > 0 {
			targets = append(targets, s)
		}
	}
	var now *applied
	switch len(targets) {
	case 0:
		now = e.unapplied
	case 1:
		s := targets[0]
		if s.applied == nil {
			s.applied = e.list(s)
		}
		now = s.applied
	default:
		now = e.list(targets...)
	}
	// What did not change stays the same one, which makes comparing cheap.
	if c.applied == nil || !c.applied.equal(now) {
		c.applied = now
	}
	return c.applied
}

// staleTarget notes that other policies apply to the pods of a selection.
func (e *Engine) staleTarget(s *selection) {
	s.applied = nil
	if !s.stale {
		s.stale = true
		e.staleTargets = append(e.staleTargets, s)
	}
}

// staleClass notes that other policies apply to the pods of a class.
func (e *Engine) staleClass(c *class) {
	if c.stale {
		return
	}
	c.stale = true
	for _, p := range c.pods[local] {
		e.work.Visits++
		e.dirtyPod(p)
	}
}

func (e *Engine) dirtyPod(p *pod) {
	if !p.dirty {
		p.dirty = true
		e.dirtyPods = append(e.dirtyPods, p)
	}
}

func (e *Engine) flushEndpoints() (updates, removals []model.Update) {
	for _, s := range e.staleTargets {
		s.stale = false
		for c := range s.classes.All() {
			e.work.Visits++
			e.staleClass(c)
		}
	}
	e.staleTargets = nil
	dirty := e.dirtyPods
	e.dirtyPods = nil
	slices.SortFunc(dirty, func(a, b *pod) int { return a.id.Compare(b.id) })
	for i, p := range dirty {
		p.dirty = false
		// A pod that was deleted and came again is dirty twice.
		if i > 0 && dirty[i-1].id == p.id {
			continue
		}
		e.work.Endpoints++
		before, known := e.endpoints[p.id]
		current := e.pods[p.id]
		if current == nil || !current.endpoint() {
			if known {
				delete(e.endpoints, p.id)
				removals = append(removals, model.EndpointRemove{ID: p.id})
			}
			continue
		}
		now := e.appliedTo(current.class)
		e.endpoints[p.id] = now
		if !known || !before.equal(now) {
			updates = append(updates, model.EndpointUpdate{Endpoint: now.endpoint(p.id)})
		}
	}
	return updates, removals
}
