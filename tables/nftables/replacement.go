package nftables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// dropOnly returns the chain that is programmed in a closed one's place: it drops, and
// refers to nothing.
func dropOnly(name, why string) *tables.Chain {
	const enough = 60
	if len(why) > enough {
		why = strings.ToValidUTF8(why[:enough], "")
	}
	return &tables.Chain{Name: name, Rules: []tables.Rule{{Action: tables.Drop{}, Comment: "refused: " + why}}}
}

// goal returns the rules that a desired chain is to have in the kernel, and
// their hashes.
func (c *chain) goal() ([]tables.Rule, []string) {
	if c.replacement != nil {
		return c.replacement.Rules, c.replacementHashes
	}
	return c.desired.Rules, c.hashes
}

// replacements decides the programmed form of quarantined chains and entries.
type replacements struct{ *quarantine }

// decide decides the programmed form of the dirty chains and entries. A base chain that refers to a
// quarantined unit is an error.
func (p *replacements) decide() error {
	idle := p.idle()
	for name := range p.dirtySets {
		if s, ok := p.sets[name]; ok && s.shape.Verdicts && (!idle || len(s.members.quarantined) > 0) {
			p.decideEntries(s)
		}
	}
	if idle {
		return nil
	}
	var askers map[string][]string
	passed := names{}
	for queue := p.dirtyChains.sorted(); len(queue) > 0; queue = queue[1:] {
		c, ok := p.chains[queue[0]]
		if !ok {
			continue
		}
		if p.state(kernel.Unit{Kind: kernel.ChainUnit, Name: c.name}) == kept {
			// The plan leaves it as it is, but the chains that ask it depend on its desired
			// state. Chains may ask one another, so each is passed once.
			if _, again := passed[c.name]; again {
				continue
			}
			passed.add(c.name)
		} else if changed, err := p.decideChain(c); err != nil {
			return err
		} else if !changed {
			continue
		}
		if askers == nil {
			askers = p.askers()
		}
		for _, name := range askers[c.name] {
			p.dirtyChains.add(name)
			queue = append(queue, name)
		}
	}
	return nil
}

// askers returns for each chain the desired ones that ask it.
func (p *replacements) askers() map[string][]string {
	out := map[string][]string{}
	for name, c := range p.chains {
		if c.desired == nil || c.desired.Hook != nil {
			continue
		}
		for _, r := range c.desired.Rules {
			if to := r.Asks(); to != "" {
				out[to] = append(out[to], name)
			}
		}
	}
	return out
}

// decideChain decides about one chain, and reports whether it is closed for
// other reasons than before.
func (p *replacements) decideChain(c *chain) (changed bool, err error) {
	own := kernel.Unit{Kind: kernel.ChainUnit, Name: c.name}
	causes := p.causesOf(c)
	changed = !slices.Equal(causes, p.causes[c.name])
	if len(causes) == 0 {
		delete(p.causes, c.name)
		p.replace(c, nil)
		return changed, nil
	}
	first := causes[0]
	if c.desired.Hook != nil {
		r := p.refused[first]
		return false, fmt.Errorf("base chain %s relies on %w", c.name,
			&ObjectError{Object: r.object, Name: first.Name, Rule: r.rule, Err: errors.New(r.reason)})
	}
	p.causes[c.name] = causes
	why := first.Describe()
	if first == own {
		why = "its turn comes"
		if r := p.refused[own]; r != nil {
			why = r.reason
		}
	}
	p.replace(c, dropOnly(c.name, why))
	return changed, nil
}

// replace programs other rules in the place of a chain, or with nil its own.
func (p *replacements) replace(c *chain, by *tables.Chain) {
	if c.replacement == nil && by == nil {
		return
	}
	before := c.replacementHashes
	c.replacement, c.replacementHashes = by, nil
	c.reopens = by == nil && c.observed != nil && len(c.observed.Rules) == 1 && c.observed.Rules[0].Hash == before[0]
	if by != nil {
		c.replacementHashes = by.Hashes()
	}
}

// causesOf returns the units because of which a chain is closed: first the chain itself,
// then absent units that it refers to, then the causes of the chains that it asks (see
// tables.Chain.Asked).
func (p *replacements) causesOf(c *chain) []kernel.Unit {
	if c.desired == nil {
		return nil
	}
	own := kernel.Unit{Kind: kernel.ChainUnit, Name: c.name}
	var causes []kernel.Unit
	add := func(u kernel.Unit) {
		if !slices.Contains(causes, u) {
			causes = append(causes, u)
		}
	}
	if s := p.state(own); s == closed || s == absent {
		add(own)
	}
	for u := range references(c.desired.Rules) {
		if p.state(u) == absent {
			add(u)
		}
	}
	if r := p.refused[own]; c.desired.Hook != nil || r != nil && r.trying {
		return causes
	}
	for _, asked := range c.desired.Asked(p.desiredChain) {
		if u := (kernel.Unit{Kind: kernel.ChainUnit, Name: asked.Name}); p.refuses(u) {
			add(u)
		}
		for u := range references(asked.Rules) {
			if p.refuses(u) && p.refused[u].state == absent {
				add(u)
			}
		}
	}
	return causes
}

// decideEntries decides the programmed form of a map's entries.
func (p *replacements) decideEntries(s *set) {
	ms := &s.members
	aside := map[model.Member]unitState{}
	decide := func(m model.Member) {
		st := p.state(kernel.Unit{Kind: kernel.EntryUnit, Name: s.name, Entry: m})
		target := tables.Target(ms.desired[m])
		if st == programmed && target != "" && p.state(kernel.Unit{Kind: kernel.ChainUnit, Name: target}) == absent {
			st = closed
		}
		if st != programmed {
			aside[m] = st
		}
	}
	for u := range p.refused {
		if u.Kind == kernel.EntryUnit && u.Name == s.name {
			decide(u.Entry)
		}
	}
	for u := range p.onHold {
		if u.Kind == kernel.EntryUnit && u.Name == s.name {
			decide(u.Entry)
		}
	}
	if p.absentChain() {
		for m := range ms.desired {
			decide(m)
		}
	}
	for m := range aside {
		ms.markDirty(m)
	}
	for m := range ms.quarantined {
		ms.markDirty(m)
	}
	ms.quarantined = aside
}
