package policyflows

import (
	"slices"

	"github.com/felixlike/felixlike/model"
)

// SetPod creates or replaces a pod.
func (s *Store) SetPod(now Pod) {
	p := s.pods[now.Interface]
	if p == nil {
		p = &pod{name: now.Interface}
		s.pods[p.name] = p
	}
	moved := p.Port != now.Port || !slices.Equal(p.Addresses, now.Addresses)
	if !now.Open {
		now.Ingress, now.Egress = model.Applied{}, model.Applied{}
	}
	p.Pod = now
	for _, d := range model.Directions() {
		s.apply(p, d, moved)
	}
	s.dirty.closing[p.name] = struct{}{}
	s.dirty.rates[p.name] = struct{}{}
}

// RemovePod removes a pod: nothing is left of it, not even that it is closed.
func (s *Store) RemovePod(name string) {
	p := s.pods[name]
	if p == nil {
		return
	}
	p.Pod = Pod{}
	for _, d := range model.Directions() {
		s.apply(p, d, true)
	}
	delete(s.pods, name)
	s.dirty.closing[name] = struct{}{}
	s.dirty.rates[name] = struct{}{}
}

// apply brings the pod's policies of a direction to those that apply to it now,
// and notes the policies with changed clauses.
func (s *Store) apply(p *pod, d model.Direction, moved bool) {
	before, now := p.policies[d-1], []*policy(nil)
	a := p.applied(d)
	for _, ids := range [][]model.PolicyID{a.Admin, a.NetworkPolicies, a.Baseline} {
		for _, id := range ids {
			now = append(now, s.policyOf(side{id, d}))
		}
	}
	p.policies[d-1] = now
	for _, q := range now {
		if _, had := q.pods[p]; !had || moved {
			q.pods[p] = struct{}{}
			s.dirty.pods[podClause{layerOf(q.id.Tier, d), p.name}] = struct{}{}
		}
	}
	for _, q := range before {
		if !slices.Contains(now, q) {
			delete(q.pods, p)
			s.dirty.pods[podClause{layerOf(q.id.Tier, d), p.name}] = struct{}{}
			s.dropUnused(q)
		}
	}
}
