package policy

import (
	"slices"

	"github.com/felixlike/felixlike/model"
)

// applied lists the policies that apply to a pod in each direction. It is
// never changed, and shared: 10,000 pods under 10,000 policies would have
// lists of 8 GB otherwise.
type applied struct{ ingress, egress []model.PolicyID }

func (a *applied) equal(o *applied) bool {
	return a == o || slices.Equal(a.ingress, o.ingress) && slices.Equal(a.egress, o.egress)
}

// endpoint returns the endpoint of a pod that these apply to.
func (a *applied) endpoint(id model.PodID) *model.Endpoint {
	return &model.Endpoint{
		ID:      id,
		Ingress: model.Applied{NetworkPolicies: a.ingress},
		Egress:  model.Applied{NetworkPolicies: a.egress},
	}
}

// list lists the policies of selections.
func (e *Engine) list(targets ...*selection) *applied {
	a := &applied{}
	for _, s := range targets {
		for p := range s.policies.all() {
			if p.compiled.ingress {
				a.ingress = append(a.ingress, p.id)
			}
			if p.compiled.egress {
				a.egress = append(a.egress, p.id)
			}
		}
	}
	e.work.Listed += uint64(len(a.ingress) + len(a.egress))
	slices.SortFunc(a.ingress, model.PolicyID.Compare)
	slices.SortFunc(a.egress, model.PolicyID.Compare)
	if slices.Equal(a.ingress, a.egress) {
		a.egress = a.ingress
	}
	a.ingress, a.egress = slices.Clip(a.ingress), slices.Clip(a.egress)
	return a
}

// appliedTo returns the policies that apply to the pods of a class.
func (e *Engine) appliedTo(c *class) *applied {
	if !c.stale {
		return c.applied
	}
	c.stale = false
	var targets []*selection
	for s := range c.selections.all() {
		if s.policies.len() > 0 {
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
		for c := range s.classes.all() {
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
