package policyflows

import (
	"maps"
	"slices"
)

// policiesOf finds the policies with a part in the flows of a key. It searches all
// clauses: a key is refused rarely, so there is no index of keys.
func (re *renderer) policiesOf(key string) []*policy {
	found := map[*policy]struct{}{}
	for m := range re.members {
		for l := range layerCount {
			if c := (memberClause{l, m}); c.key() == key {
				for u := range re.eachUse(c) {
					found[u.rule.policy] = struct{}{}
				}
			}
		}
	}
	for c, rules := range re.ports {
		if c.key() == key {
			for r := range rules {
				found[r.policy] = struct{}{}
			}
		}
	}
	for l := range layerCount {
		if re.portSets[l].flowsKey() == key {
			for _, r := range re.rules {
				if r.layer == l && r.bit != 0 {
					found[r.policy] = struct{}{}
				}
			}
		}
	}
	for name := range re.pods {
		for l := range layerCount {
			if c := (podClause{l, name}); c.key() == key {
				for r := range re.eachRule(c) {
					found[r.policy] = struct{}{}
				}
			}
		}
	}
	for id, r := range re.rules {
		if r.installed && ruleKey(id) == key {
			found[r.policy] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b *policy) int { return a.compare(b.side) })
}
