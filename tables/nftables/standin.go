package nftables

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// standIn returns what is programmed in a chain's place while it stands closed:
// it drops, and refers to nothing.
func standIn(name, why string) *tables.Chain {
	const enough = 60
	if len(why) > enough {
		why = strings.ToValidUTF8(why[:enough], "")
	}
	return &tables.Chain{Name: name, Rules: []tables.Rule{{Action: tables.Drop{}, Comment: "refused: " + why}}}
}

// goal returns the rules that a wanted chain is to have in the kernel, and
// their hashes.
func (c *chain) goal() ([]tables.Rule, []string) {
	if c.standIn != nil {
		return c.standIn.Rules, c.standInHashes
	}
	return c.want.Rules, c.hashes
}

// stand decides what of the touched chains and entries is programmed. A base
// chain that relies on what is set aside is an error.
func (t *Table) stand() error {
	idle := t.quarantine.idle()
	for name := range t.touchedSets {
		if s, ok := t.sets[name]; ok && s.shape.Verdicts && (!idle || len(s.members.aside) > 0) {
			t.standEntries(s)
		}
	}
	if idle {
		return nil
	}
	var askers map[string][]string
	passed := names{}
	for queue := t.touchedChains.sorted(); len(queue) > 0; queue = queue[1:] {
		c, ok := t.chains[queue[0]]
		if !ok {
			continue
		}
		if t.quarantine.standing(kernel.Unit{Kind: kernel.ChainUnit, Name: c.name}) == held {
			// It is not planned, but those that ask it go by what it is wanted to be. Chains
			// may be wanted that ask one another, so it tells them once.
			if _, again := passed[c.name]; again {
				continue
			}
			passed.add(c.name)
		} else if changed, err := t.standChain(c); err != nil {
			return err
		} else if !changed {
			continue
		}
		if askers == nil {
			askers = t.askers()
		}
		for _, name := range askers[c.name] {
			t.touchedChains.add(name)
			queue = append(queue, name)
		}
	}
	return nil
}

// askers returns for each chain the wanted ones that ask it.
func (t *Table) askers() map[string][]string {
	out := map[string][]string{}
	for name, c := range t.chains {
		if c.want == nil || c.want.Hook != nil {
			continue
		}
		for _, r := range c.want.Rules {
			if to := r.Asks(); to != "" {
				out[to] = append(out[to], name)
			}
		}
	}
	return out
}

// standChain decides about one chain, and reports whether it stands closed for
// other reasons than before.
func (t *Table) standChain(c *chain) (changed bool, err error) {
	q, own := &t.quarantine, kernel.Unit{Kind: kernel.ChainUnit, Name: c.name}
	causes := t.causesOf(c)
	changed = !slices.Equal(causes, q.causes[c.name])
	if len(causes) == 0 {
		delete(q.causes, c.name)
		t.replace(c, nil)
		return changed, nil
	}
	first := causes[0]
	if c.want.Hook != nil {
		r := q.refused[first]
		return false, fmt.Errorf("base chain %s relies on %w", c.name,
			&ObjectError{Object: r.object, Name: first.Name, Rule: r.rule, Err: errors.New(r.reason)})
	}
	q.causes[c.name] = causes
	why := first.Describe()
	if first == own {
		why = "its turn comes"
		if r := q.refused[own]; r != nil {
			why = r.reason
		}
	}
	t.replace(c, standIn(c.name, why))
	return changed, nil
}

// replace programs other rules in the place of a chain, or with nil its own.
func (t *Table) replace(c *chain, by *tables.Chain) {
	if c.standIn == nil && by == nil {
		return
	}
	before := c.standInHashes
	c.standIn, c.standInHashes = by, nil
	c.reopens = by == nil && c.have != nil && len(c.have.Rules) == 1 && c.have.Rules[0].Hash == before[0]
	if by != nil {
		c.standInHashes = by.Hashes()
	}
}

// causesOf returns the units because of which a chain stands closed, its own
// first: itself, what is not there of what it refers to, and all because of which
// the chains stand closed that it asks (see tables.Chain.Asked).
func (t *Table) causesOf(c *chain) []kernel.Unit {
	if c.want == nil {
		return nil
	}
	q, own := &t.quarantine, kernel.Unit{Kind: kernel.ChainUnit, Name: c.name}
	var causes []kernel.Unit
	add := func(u kernel.Unit) {
		if !slices.Contains(causes, u) {
			causes = append(causes, u)
		}
	}
	if s := q.standing(own); s == closed || s == absent {
		add(own)
	}
	for u := range references(c.want.Rules) {
		if q.standing(u) == absent {
			add(u)
		}
	}
	if r := q.refused[own]; c.want.Hook != nil || r != nil && r.trying {
		return causes
	}
	for _, asked := range c.want.Asked(t.wanted) {
		if u := (kernel.Unit{Kind: kernel.ChainUnit, Name: asked.Name}); q.refuses(u) {
			add(u)
		}
		for u := range references(asked.Rules) {
			if q.refuses(u) && q.refused[u].standing == absent {
				add(u)
			}
		}
	}
	return causes
}

// wanted returns the chain as it is wanted, or nil.
func (t *Table) wanted(name string) *tables.Chain {
	if c := t.chains[name]; c != nil {
		return c.want
	}
	return nil
}

// refuses reports whether a unit is set aside for those that ask for it. While it is
// being tried they still wait until that has come to a good end, unless it is they
// who show whether it is right.
func (q *quarantine) refuses(u kernel.Unit) bool {
	r := q.refused[u]
	return r != nil && !r.removal && !(r.trying && r.path)
}

// standEntries decides what of the entries of a map is programmed.
func (t *Table) standEntries(s *set) {
	q, ms := &t.quarantine, &s.members
	aside := map[model.Member]standing{}
	decide := func(m model.Member) {
		st := q.standing(kernel.Unit{Kind: kernel.EntryUnit, Name: s.name, Entry: m})
		target := tables.Target(ms.want[m])
		if st == programmed && target != "" && q.standing(kernel.Unit{Kind: kernel.ChainUnit, Name: target}) == absent {
			st = closed
		}
		if st != programmed {
			aside[m] = st
		}
	}
	for u := range q.refused {
		if u.Kind == kernel.EntryUnit && u.Name == s.name {
			decide(u.Entry)
		}
	}
	for u := range q.resting {
		if u.Kind == kernel.EntryUnit && u.Name == s.name {
			decide(u.Entry)
		}
	}
	if q.absentChain() {
		for m := range ms.want {
			decide(m)
		}
	}
	for m := range aside {
		ms.touch(m)
	}
	for m := range ms.aside {
		ms.touch(m)
	}
	ms.aside = aside
}

// absentChain reports whether a chain is set aside that cannot even stand closed.
func (q *quarantine) absentChain() bool {
	for u, r := range q.refused {
		if u.Kind == kernel.ChainUnit && !r.trying && r.standing == absent {
			return true
		}
	}
	return false
}

// touchUnit has the unit compared with the kernel, with all that cannot refer to it.
func (t *Table) touchUnit(u kernel.Unit) {
	switch u.Kind {
	case kernel.SetUnit:
		t.touchedSets.add(u.Name)
	case kernel.EntryUnit:
		t.touchedSets.add(u.Name)
		t.set(u.Name).members.touch(u.Entry)
		return
	default:
		t.touchedChains.add(u.Name)
	}
	if r := t.quarantine.refused[u]; r != nil && r.standing == absent {
		t.touchReferrersOf(u)
	}
}

// touchReferrersOf has everything compared that refers to a chain or a set.
func (t *Table) touchReferrersOf(u kernel.Unit) {
	for name, c := range t.chains {
		if c.want != nil && refersTo(c.want.Rules, u) {
			t.touchedChains.add(name)
		}
	}
	if u.Kind != kernel.ChainUnit {
		return
	}
	for name, s := range t.sets {
		for m, verdict := range s.members.want {
			if tables.Target(verdict) == u.Name {
				t.touchedSets.add(name)
				s.members.touch(m)
			}
		}
	}
}

// references yields the sets and chains that rules refer to, as often as they
// do.
func references(rules []tables.Rule) iter.Seq[kernel.Unit] {
	return func(yield func(kernel.Unit) bool) {
		for _, r := range rules {
			for _, m := range r.Matches {
				if name := tables.SetOf(m); name != "" && !yield(kernel.Unit{Kind: kernel.SetUnit, Name: name}) {
					return
				}
			}
			if d, ok := r.Action.(tables.Dispatch); ok && !yield(kernel.Unit{Kind: kernel.SetUnit, Name: d.Map}) {
				return
			}
			if name := tables.Target(r.Action); name != "" && !yield(kernel.Unit{Kind: kernel.ChainUnit, Name: name}) {
				return
			}
		}
	}
}

func refersTo(rules []tables.Rule, u kernel.Unit) bool {
	for r := range references(rules) {
		if r == u {
			return true
		}
	}
	return false
}
