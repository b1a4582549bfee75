package policyflows

import "github.com/felixlike/felixlike/model"

// SetPolicy creates or replaces a policy. Only flows of rules that differ become
// dirty.
func (s *Store) SetPolicy(p *model.Policy) {
	for _, d := range model.Directions() {
		s.setRules(side{p.ID, d}, p.Precedence, p.Rules(d), true)
	}
}

// RemovePolicy removes a policy. What it isolates stays isolated for as long as
// pods say that it applies to them.
func (s *Store) RemovePolicy(id model.PolicyID) {
	for _, d := range model.Directions() {
		s.setRules(side{id, d}, model.Precedence{}, nil, false)
	}
}

func (s *Store) setRules(at side, precedence model.Precedence, rules []model.Rule, known bool) {
	p := s.policyOf(at)
	if p.precedence != precedence {
		p.precedence = precedence
		s.placer.layers[layerOf(at.id.Tier, at.direction)].stale = true
	}
	p.known = known
	if p.refused && !sameRules(p.rules, rules) {
		s.quarantine.lift(p)
	}
	for i, old := range p.rules {
		if i >= len(rules) || !equalRules(old.spec, rules[i]) {
			s.removeRule(old)
		}
	}
	before := p.rules
	p.rules = make([]*rule, len(rules))
	for i, spec := range rules {
		if i < len(before) && equalRules(before[i].spec, spec) {
			p.rules[i] = before[i]
		} else {
			p.rules[i] = s.addRule(p, i, spec)
		}
	}
	s.networks.setUses(p, before)
	s.dropUnused(p)
}

func (s *Store) addRule(p *policy, index int, spec model.Rule) *rule {
	r := newRule(p, index, spec)
	s.rules[r.RuleID] = r
	if spec.Action == model.Reject {
		s.renderer.rejecting[r.RuleID] = struct{}{}
	}
	s.ids.add(r.RuleID)
	s.portSets[r.layer].enter(r)
	s.placer.layers[r.layer].rules++
	s.placer.wait(r)
	return r
}

// removeRule removes the rule with all its clauses. Complete frees its id, unless another
// rule has taken its place.
func (s *Store) removeRule(r *rule) {
	s.uninstall(r)
	delete(s.rules, r.RuleID)
	delete(s.renderer.rejecting, r.RuleID)
	s.dirty.rules[r.RuleID] = struct{}{}
	s.ids.remove(r.RuleID)
	s.portSets[r.layer].leave(r)
	s.placer.layers[r.layer].rules--
	s.placer.layers[r.layer].stale = true
}
