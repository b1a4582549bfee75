package nftables

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// A look-up in an interval set can miss an address that the set has before and after a transaction, and a rule that drops must not miss it:
//
//   - up to 6.12, while the transaction splits or merges the interval of the address: a look-up descends to the nearest boundary, also to one
//     that is not active;
//   - from 6.18 on, and in every kernel with concatenations, in a set that is new in the transaction of its rules, until the kernel has handled
//     all of it.
//
// So a new set is filled in a transaction before that of its rules (plan.first), and no interval of a set in use changes. A renewal
// takes three transactions instead:
//
//  1. a stand-in has the new members;
//  2. the rules look it up, a new set takes the place of the old one, and all other changes are made;
//  3. the rules look up the new set, and the stand-in goes.

// renewal are the sets that a plan renews with the names of their stand-ins, and the indices of the rules in each chain that look them up.
type renewal struct {
	sets  map[string]string
	bound map[string][]int
}

func (r *renewal) any() bool { return len(r.sets) > 0 }

func (r *renewal) renews(set string) bool {
	_, ok := r.sets[set]
	return ok
}

const standInSuffix = ".next"

// standsFor returns the set that a stand-in with this name stands in for.
func standsFor(name string) (string, bool) {
	base := name
	for strings.HasSuffix(base, standInSuffix) {
		base = strings.TrimSuffix(base, standInSuffix)
	}
	return base, base != name
}

// standIn returns a free name for the set that stands in for one. A renewal that was interrupted leaves a stand-in with other members, which the
// same plan deletes.
func (m *planner) standIn(set string) string {
	name := set + standInSuffix
	for m.sets[name] != nil {
		name += standInSuffix
	}
	return name
}

// interval reports whether the kernel has the members of the shape as intervals.
func interval(sh kernel.Shape) bool { return sh.Kind == model.Networks || sh.Kind == model.Senders }

// ahead returns the groups that a new set is made in.
func (p *plan) ahead(s *set) *[]group {
	if interval(s.shape) {
		return &p.first
	}
	return &p.head
}

// renew finds the sets to renew. While a chain is quarantined in the kernel's version, its rules are not known, and sets are changed in
// place.
func (m *planner) renew(p *plan) {
	for name, c := range m.chains {
		if c.observed != nil && m.quarantine.leaves(kernel.ChainUnit, name) {
			return
		}
	}
	for _, name := range m.dirtySets.sorted() {
		s := m.sets[name]
		if s == nil || !s.desired || s.observed == nil || m.quarantine.leaves(kernel.SetUnit, name) || !s.splits() {
			continue
		}
		p.renewal.sets[name] = m.standIn(name)
		m.markReferrersOf(kernel.Unit{Kind: kernel.SetUnit, Name: name})
		next := s.op(kernel.AddSet)
		next.Name = p.renewal.sets[name]
		p.first = append(p.first, group{next})
		for some := range slices.Chunk(s.members.sorted(), s.perMessage()) {
			next.Kind, next.Changes = kernel.AddMembers, some
			p.first = append(p.first, group{next})
		}
	}
}

// splits reports whether addresses that the kernel's interval set has, and is to have, change from one interval to another. A miss in a map
// of numbers only denies what is allowed.
func (s *set) splits() bool {
	if s.shape.Kind != model.Networks || s.shape.Numbers {
		return false
	}
	if s.observed.reload {
		return true
	}
	deletes, adds := s.members.diff()
	for len(deletes) > 0 && len(adds) > 0 {
		gone, come := deletes[0].Member.Range(), adds[0].Member.Range()
		switch {
		case gone.To().Less(come.From()):
			deletes = deletes[1:]
		case come.To().Less(gone.From()):
			adds = adds[1:]
		default:
			return true
		}
	}
	return false
}

// rebind returns the rules of a chain as the second transaction of a renewal writes them, and the kernel's rules without the hashes of
// those that it writes anew.
func (p *plan) rebind(chain string, goal []tables.Rule, hashes []string, old []kernel.Rule) ([]tables.Rule, []kernel.Rule) {
	if !p.renewal.any() {
		return goal, old
	}
	rewritten := names{}
	for i, r := range goal {
		matches := slices.Clone(r.Matches)
		for k, m := range matches {
			if m, ok := m.(tables.MatchSet); ok && p.renewal.renews(m.Set) {
				m.Set = p.renewal.sets[m.Set]
				matches[k] = m
				rewritten.add(hashes[i])
			}
		}
		if _, ok := rewritten[hashes[i]]; !ok {
			continue
		}
		if len(p.renewal.bound[chain]) == 0 {
			goal, old = slices.Clone(goal), slices.Clone(old)
		}
		goal[i].Matches = matches
		p.renewal.bound[chain] = append(p.renewal.bound[chain], i)
	}
	if len(rewritten) > 0 {
		for i, r := range old {
			if _, ok := rewritten[r.Hash]; ok {
				old[i].Hash = ""
			}
		}
	}
	return goal, old
}

// join makes the plan one transaction, after its first ones, if it renews a set: the kernel deletes a set when no rule looks it up any more.
func (p *plan) join() {
	if !slices.ContainsFunc(p.first, func(g group) bool { return g[0].Kind == kernel.AddSet }) {
		p.head, p.first = append(p.first, p.head...), nil
	}
	if !p.renewal.any() {
		return
	}
	var removals, rest group
	for _, g := range append(p.head, p.tail) {
		for _, o := range g {
			if o.Kind == kernel.DeleteRule || o.Kind == kernel.FlushChain {
				removals = append(removals, o)
			} else {
				rest = append(rest, o)
			}
		}
	}
	p.head, p.tail = nil, append(removals, rest...)
}

// completeRenewal is the third transaction of a renewal.
func (t *Table) completeRenewal(p *plan, result *tables.Result) error {
	if !p.renewal.any() {
		return nil
	}
	var ops, adds []kernel.Op
	for _, name := range slices.Sorted(maps.Keys(p.renewal.bound)) {
		bound := p.renewal.bound[name]
		goal, hashes := t.chains[name].goal()
		rules := slices.Clone(p.rules[name])
		for _, i := range bound {
			if rules[i].Handle == 0 {
				return fmt.Errorf("renew the sets of chain %s: the kernel has not echoed rule %d", name, i+1)
			}
			ops = append(ops, kernel.Op{Kind: kernel.DeleteRule, Name: name, Handle: rules[i].Handle})
			add := kernel.Op{Kind: kernel.AddRule, Name: name, Index: i, Rule: &goal[i], Hash: hashes[i], Echo: &rules[i]}
			for next := i + 1; next < len(rules); next++ {
				if !slices.Contains(bound, next) {
					add.Handle = rules[next].Handle
					break
				}
			}
			adds = append(adds, add)
		}
		for _, i := range bound {
			rules[i] = kernel.Rule{Hash: hashes[i]}
		}
		p.rules[name] = rules
	}
	ops = append(ops, adds...)
	for _, name := range slices.Sorted(maps.Keys(p.renewal.sets)) {
		ops = append(ops, kernel.Op{Kind: kernel.DeleteSet, Name: p.renewal.sets[name], Shape: t.sets[name].shape})
	}
	return t.send(ops, result)
}
