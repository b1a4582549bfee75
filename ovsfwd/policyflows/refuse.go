package policyflows

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// refuse takes a policy out of what is programmed: its flows go, and the pods
// that it applies to are closed in its direction.
func (s *Store) refuse(p *policy) {
	if !p.refused {
		p.refused = true
		s.refused[p] = struct{}{}
		s.reconsider(p)
	}
}

// lift puts a policy back that was refused.
func (s *Store) lift(p *policy) {
	p.refused = false
	delete(s.refused, p)
	s.reconsider(p)
}

// liftUsers puts the refused policies back that ask a group, which has changed.
func (s *Store) liftUsers(id model.GroupID) {
	for p := range s.refused {
		if slices.ContainsFunc(p.rules, func(r *rule) bool {
			return slices.Contains(r.spec.Peers, id) || slices.Contains(r.spec.NamedPorts, id)
		}) {
			s.lift(p)
		}
	}
}

func (s *Store) reconsider(p *policy) {
	for _, r := range p.rules {
		s.wait(r)
	}
	s.closePods(p)
}

func (s *Store) closePods(p *policy) {
	for q := range p.pods {
		s.dirty.closing[q.name] = struct{}{}
	}
}

// behind finds the policies whose rules have a part in the flows of a key. It
// looks through everything: keys are refused rarely, and kept by nobody here.
func (s *Store) behind(key string) []*policy {
	found := map[*policy]struct{}{}
	for m := range s.members {
		for l := range layerCount {
			if c := (memberClause{l, m}); c.key() == key {
				for u := range s.eachUse(c) {
					found[u.rule.policy] = struct{}{}
				}
			}
		}
	}
	for c, rules := range s.ports {
		if c.key() == key {
			for r := range rules {
				found[r.policy] = struct{}{}
			}
		}
	}
	for name := range s.pods {
		for l := range layerCount {
			if c := (podClause{l, name}); c.key() == key {
				for r := range s.eachRule(c) {
					found[r.policy] = struct{}{}
				}
			}
		}
	}
	for id, r := range s.rules {
		if r.installed && ruleKey(id) == key {
			found[r.policy] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b *policy) int { return a.compare(b.side) })
}
