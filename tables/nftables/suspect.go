package nftables

import (
	"slices"

	"github.com/felixlike/felixlike/tables"
)

// vital returns what cannot be set aside: the base chains, and what they refer
// to; of a chain among that, that it stands closed is accepted.
func (t *Table) vital() map[unit]bool {
	out := map[unit]bool{}
	for name, c := range t.chains {
		if c.want != nil && c.want.Hook != nil {
			out[unit{kind: chainUnit, name: name}] = true
			for u := range references(c.want.Rules) {
				out[u] = true
			}
		}
	}
	return out
}

// decides reports whether the table sees traffic: one of the wanted base chains is
// in the kernel.
func (t *Table) decides() bool {
	for _, c := range t.chains {
		if c.want != nil && c.want.Hook != nil && c.have != nil && c.have.base != (baseHook{}) {
			return true
		}
	}
	return false
}

// inForce reports whether the kernel has something of a chain or an entry that
// packets may come to.
func (t *Table) inForce(u unit) bool {
	return t.inKernel(u) && !(u.kind == chainUnit && t.chains[u.name].idle())
}

// suspects returns the units that a refused transaction can have been about, or
// all of them for a table that is made anew, in the order in which they are tried:
// sets; chains, each before those that it leads to, so that the kernel sees what
// it is given; what is to be deleted.
func (t *Table) suspects(anew bool, vital map[unit]bool) []unit {
	among := t.differing(anew)
	var out []unit
	take := func(u unit) {
		if among[u] && t.quarantine.refused[u] == nil && (!vital[u] || u.kind == chainUnit && t.chains[u.name].want.Hook == nil) {
			out = append(out, u)
		}
		delete(among, u)
	}
	for _, u := range sortedUnits(among) {
		if u.kind == setUnit && t.wants(u) {
			take(u)
		}
	}
	for _, u := range t.walk() {
		take(u)
	}
	rest := sortedUnits(among)
	for _, u := range rest {
		if t.wants(u) {
			take(u)
		}
	}
	for _, u := range slices.Backward(rest) { // chains, then the sets they refer to
		take(u)
	}
	return out
}

// differing returns the units that are not in the kernel as wanted; of a table
// that is made anew, all.
func (t *Table) differing(anew bool) map[unit]bool {
	out := map[unit]bool{}
	for _, c := range t.chains {
		if anew && c.want != nil || t.differs(c) {
			out[unit{kind: chainUnit, name: c.name}] = true
		}
	}
	for _, s := range t.sets {
		own := unit{kind: setUnit, name: s.name}
		deletes, adds := s.members.diff()
		switch {
		case !s.wanted:
			if s.have != nil {
				out[own] = true
			}
		case anew || s.have == nil || s.have.reload || !s.shape.verdicts && len(deletes)+len(adds) > 0:
			out[own] = true
		}
		if !s.wanted || !s.shape.verdicts {
			continue
		}
		for _, c := range append(deletes, adds...) {
			out[unit{entryUnit, s.name, c.member}] = true
		}
		if anew {
			for m := range s.members.want {
				out[unit{entryUnit, s.name, m}] = true
			}
		}
	}
	return out
}

// differs reports whether the kernel does not hold the chain as wanted.
func (t *Table) differs(c *chain) bool {
	if c.want == nil || c.have == nil {
		return c.want != nil || c.have != nil
	}
	_, hashes := c.goal()
	return c.have.base != base(c.want.Hook) || !hashesAre(c.checked(&t.digests), hashes)
}

// walk returns the chains, and the entries of the maps that they ask, in the order
// in which packets can come to them.
func (t *Table) walk() []unit {
	var out, queue []unit
	seen := map[unit]bool{}
	reach := func(u unit) {
		if !seen[u] {
			seen[u] = true
			queue = append(queue, u)
		}
	}
	for _, u := range sortedUnits(t.vital()) {
		if u.kind == chainUnit {
			reach(u)
		}
	}
	for len(queue) > 0 {
		u := queue[0]
		queue = queue[1:]
		c := t.chains[u.name]
		if u.kind == setUnit {
			for _, e := range t.set(u.name).members.sorted() {
				out = append(out, unit{entryUnit, u.name, e.member})
				if target := tables.Target(e.verdict); target != "" {
					reach(unit{kind: chainUnit, name: target})
				}
			}
			continue
		}
		if c == nil || c.want == nil {
			continue
		}
		out = append(out, u)
		for u := range references(c.want.Rules) {
			if u.kind == chainUnit || t.set(u.name).shape.verdicts {
				reach(u)
			}
		}
	}
	return out
}

func sortedUnits(units map[unit]bool) []unit {
	out := make([]unit, 0, len(units))
	for u := range units {
		out = append(out, u)
	}
	slices.SortFunc(out, unit.compare)
	return out
}
