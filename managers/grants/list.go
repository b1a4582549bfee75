package grants

import (
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// list is a list of policies that applies to pods in one direction.
type list struct {
	key       string
	direction model.Direction
	applied   model.Applied
	// holders counts the pods.
	holders int
	// mapped reports that the list is in grants, and not in chains. Its number is zero otherwise.
	mapped bool
	number tables.Number
	// kept reports that a pod came from a list in grants: the list stays in grants with fewer rules than it comes with.
	kept bool
}

// side is one direction of a policy.
type side struct {
	// rules are those that the grants of mapped lists are made of. expressible is false if there cannot be any.
	rules       []*rule
	expressible bool
	// ports are those of all rules.
	ports int
	// size is rules.Size.
	size  int
	lists map[*list]struct{}
	// chained counts the lists that are not mapped.
	chained int
}

// hold notes that a pod has the list, or has it no longer. It returns the list, nil if it is empty.
func (g *Grants) hold(d model.Direction, a model.Applied, by int) *list {
	if a.Empty() {
		return nil
	}
	key := rules.AppliedIdentity(d, a)
	l := g.lists[key]
	if l == nil {
		l = &list{key: key, direction: d, applied: a, kept: slices.Contains(g.options.Kept, key)}
		g.lists[key] = l
		for id := range a.All() {
			k := rules.PolicySide{ID: id, Direction: d}
			s := g.side(k)
			s.lists[l] = struct{}{}
			if s.chained++; s.chained == 1 {
				g.changedSides[k] = struct{}{}
			}
		}
	}
	l.holders += by
	g.dirtyLists[key] = struct{}{}
	return l
}

// side returns one direction of a policy, new if need be.
func (g *Grants) side(k rules.PolicySide) *side {
	s := g.sides[k]
	if s == nil {
		s = &side{lists: map[*list]struct{}{}}
		s.rules, s.expressible = compileRules(g.policies[k.ID], k.Direction)
		s.ports, s.size = portsIn(s.rules), sizeOf(g.policies[k.ID], k.Direction)
		g.sides[k] = s
	}
	return s
}

// settlePolicy compiles a policy whose rules may have changed.
func (g *Grants) settlePolicy(id model.PolicyID) {
	for _, d := range model.Directions() {
		s := g.sides[rules.PolicySide{ID: id, Direction: d}]
		if s == nil {
			continue
		}
		now, expressible := compileRules(g.policies[id], d)
		gone, come := changed(s.rules, now)
		for l := range s.lists {
			g.dirtyLists[l.key] = struct{}{}
			if !l.mapped {
				continue
			}
			for _, r := range come {
				g.activate(g.ledger.add(use{l, r}))
			}
			for _, r := range gone {
				g.activate(g.ledger.remove(use{l, r}))
			}
		}
		s.rules, s.expressible, s.ports, s.size = now, expressible, portsIn(now), sizeOf(g.policies[id], d)
	}
}

// settleList maps a list, or gives it back to the chains.
func (g *Grants) settleList(key string) {
	l := g.lists[key]
	if l == nil {
		return
	}
	g.mapList(l, l.holders > 0 && g.full == nil && g.expressible(l) && g.large(l))
	l.kept = false
	if l.holders > 0 {
		return
	}
	delete(g.lists, key)
	for id := range l.applied.All() {
		k := rules.PolicySide{ID: id, Direction: l.direction}
		s := g.sides[k]
		delete(s.lists, l)
		if s.chained--; s.chained == 0 {
			g.changedSides[k] = struct{}{}
		}
		if len(s.lists) == 0 {
			delete(g.sides, k)
		}
	}
}

func portsIn(all []*rule) (n int) {
	for _, r := range all {
		n += len(r.ports)
	}
	return n
}

func sizeOf(p *model.Policy, d model.Direction) int {
	if p == nil {
		return 0
	}
	return rules.Size(p, d)
}

// large reports whether a list has enough rules. One that is in grants needs half as many.
func (g *Grants) large(l *list) bool {
	size, need := g.size(l), g.options.From
	if l.mapped || l.kept {
		need /= 2
	}
	return size >= need
}

// size returns how many rules a list has for one family.
func (g *Grants) size(l *list) (n int) {
	for id := range l.applied.All() {
		n += g.sides[rules.PolicySide{ID: id, Direction: l.direction}].size
	}
	return n
}

// expressible reports whether grants can express a list, with not too many ports.
func (g *Grants) expressible(l *list) bool {
	if len(l.applied.Admin)+len(l.applied.Baseline) > 0 {
		return false
	}
	ports, all := 0, 0
	for id := range l.applied.All() {
		s := g.sides[rules.PolicySide{ID: id, Direction: l.direction}]
		if !s.expressible {
			return false
		}
		ports, all = ports+s.ports, all+len(s.rules)
	}
	return ports <= mostPorts*all
}

// mapList adds the grants of a list, or removes them.
func (g *Grants) mapList(l *list, mapped bool) {
	if l.mapped == mapped {
		return
	}
	l.mapped = mapped
	g.changedLists[l.key] = struct{}{}
	if mapped {
		l.number = g.numbers.take(l.key)
	}
	for id := range l.applied.All() {
		k := rules.PolicySide{ID: id, Direction: l.direction}
		s := g.sides[k]
		before := s.chained > 0
		for _, r := range s.rules {
			if mapped {
				g.activate(g.ledger.add(use{l, r}))
			} else {
				g.activate(g.ledger.remove(use{l, r}))
			}
		}
		if mapped {
			s.chained--
		} else {
			s.chained++
		}
		if before != (s.chained > 0) {
			g.changedSides[k] = struct{}{}
		}
	}
	if !mapped {
		g.numbers.release(l.number)
		l.number = 0
	}
}
