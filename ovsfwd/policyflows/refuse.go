package policyflows

import (
	"maps"
	"slices"
)

// refuse takes a policy out of what is programmed: its flows go, and the pods
// that it applies to are closed in its direction.
func (s *Store) refuse(p *policy) {
	if !p.refused {
		p.refused = true
		s.reconsider(p)
	}
}

// lift puts a policy back that was refused.
func (s *Store) lift(p *policy) {
	p.refused = false
	s.reconsider(p)
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
