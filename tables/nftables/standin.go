package nftables

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
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
		if s, ok := t.sets[name]; ok && s.shape.verdicts && (!idle || len(s.members.aside) > 0) {
			t.standEntries(s)
		}
	}
	if idle {
		return nil
	}
	for _, name := range t.touchedChains.sorted() {
		if c, ok := t.chains[name]; ok {
			if err := t.standChain(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Table) standChain(c *chain) error {
	q, own := &t.quarantine, unit{kind: chainUnit, name: c.name}
	if q.standing(own) == held {
		return nil // not planned
	}
	causes := t.causesOf(c)
	if len(causes) == 0 {
		delete(q.causes, c.name)
		t.replace(c, nil)
		return nil
	}
	first := causes[0]
	if c.want.Hook != nil {
		r := q.refused[first]
		return fmt.Errorf("base chain %s relies on %w", c.name,
			&ObjectError{Object: r.object, Name: first.name, Rule: r.rule, Err: errors.New(r.reason)})
	}
	q.causes[c.name] = causes
	why := first.describe()
	if first == own {
		why = "its turn comes"
		if r := q.refused[own]; r != nil {
			why = r.reason
		}
	}
	t.replace(c, standIn(c.name, why))
	return nil
}

// replace programs other rules in the place of a chain, or with nil its own.
func (t *Table) replace(c *chain, by *tables.Chain) {
	if c.standIn == nil && by == nil {
		return
	}
	before := c.standInHashes
	c.standIn, c.standInHashes = by, nil
	c.reopens = by == nil && c.have != nil && len(c.have.rules) == 1 && c.have.rules[0].hash == before[0]
	if by != nil {
		c.standInHashes = by.Hashes()
	}
}

// causesOf returns the units because of which a chain stands closed, its own
// first.
func (t *Table) causesOf(c *chain) []unit {
	if c.want == nil {
		return nil
	}
	q, own := &t.quarantine, unit{kind: chainUnit, name: c.name}
	var causes []unit
	if s := q.standing(own); s == closed || s == absent {
		causes = append(causes, own)
	}
	for u := range references(c.want.Rules) {
		if q.standing(u) == absent && !slices.Contains(causes, u) {
			causes = append(causes, u)
		}
	}
	return causes
}

// standEntries decides what of the entries of a map is programmed.
func (t *Table) standEntries(s *set) {
	q, ms := &t.quarantine, &s.members
	aside := map[model.Member]standing{}
	decide := func(m model.Member) {
		st := q.standing(unit{entryUnit, s.name, m})
		target := tables.Target(ms.want[m])
		if st == programmed && target != "" && q.standing(unit{kind: chainUnit, name: target}) == absent {
			st = closed
		}
		if st != programmed {
			aside[m] = st
		}
	}
	for u := range q.refused {
		if u.kind == entryUnit && u.name == s.name {
			decide(u.entry)
		}
	}
	for u := range q.resting {
		if u.kind == entryUnit && u.name == s.name {
			decide(u.entry)
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
		if u.kind == chainUnit && !r.trying && r.standing == absent {
			return true
		}
	}
	return false
}

// touchUnit has the unit compared with the kernel, with all that stands closed
// because of it.
func (t *Table) touchUnit(u unit) {
	switch u.kind {
	case setUnit:
		t.touchedSets.add(u.name)
	case entryUnit:
		t.touchedSets.add(u.name)
		t.set(u.name).members.touch(u.entry)
		return
	default:
		t.touchedChains.add(u.name)
	}
	if r := t.quarantine.refused[u]; r != nil && r.standing == absent {
		t.touchReferrersOf(u)
	}
}

// touchReferrersOf has everything compared that refers to a chain or a set.
func (t *Table) touchReferrersOf(u unit) {
	for name, c := range t.chains {
		if c.want != nil && refersTo(c.want.Rules, u) {
			t.touchedChains.add(name)
		}
	}
	if u.kind != chainUnit {
		return
	}
	for name, s := range t.sets {
		for m, verdict := range s.members.want {
			if tables.Target(verdict) == u.name {
				t.touchedSets.add(name)
				s.members.touch(m)
			}
		}
	}
}

// references yields the sets and chains that rules refer to, as often as they
// do.
func references(rules []tables.Rule) iter.Seq[unit] {
	return func(yield func(unit) bool) {
		for _, r := range rules {
			for _, m := range r.Matches {
				if name := tables.SetOf(m); name != "" && !yield(unit{kind: setUnit, name: name}) {
					return
				}
			}
			if d, ok := r.Action.(tables.Dispatch); ok && !yield(unit{kind: setUnit, name: d.Map}) {
				return
			}
			if name := tables.Target(r.Action); name != "" && !yield(unit{kind: chainUnit, name: name}) {
				return
			}
		}
	}
}

func refersTo(rules []tables.Rule, u unit) bool {
	for r := range references(rules) {
		if r == u {
			return true
		}
	}
	return false
}

// describe names the unit for people.
func (u unit) describe() string {
	switch u.kind {
	case setUnit:
		return "set " + u.name
	case chainUnit:
		return "chain " + u.name
	case entryUnit:
		return "map " + u.name + " " + u.entry.String()
	}
	return "table"
}
