package nftables

import (
	"slices"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// vital returns what cannot be set aside: the base chains, and what they refer
// to; of a chain among that, that it stands closed is accepted.
func (t *Table) vital() map[kernel.Unit]bool {
	out := map[kernel.Unit]bool{}
	for name, c := range t.chains {
		if c.want != nil && c.want.Hook != nil {
			out[kernel.Unit{Kind: kernel.ChainUnit, Name: name}] = true
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
		if c.want != nil && c.want.Hook != nil && c.have != nil && c.have.Base != (kernel.BaseHook{}) {
			return true
		}
	}
	return false
}

// inForce reports whether the kernel has something of a chain or an entry that
// packets may come to.
func (t *Table) inForce(u kernel.Unit) bool {
	return t.inKernel(u) && !(u.Kind == kernel.ChainUnit && t.chains[u.Name].idle())
}

// suspects returns the units that a refused transaction can have been about, or
// all of them for a table that is made anew, in the order in which they are tried:
// sets; chains, each before those that it leads to, so that the kernel sees what
// it is given; what is to be deleted.
func (t *Table) suspects(anew bool, vital map[kernel.Unit]bool) []kernel.Unit {
	among := t.differing(anew)
	var out []kernel.Unit
	take := func(u kernel.Unit) {
		if among[u] && t.quarantine.refused[u] == nil && (!vital[u] || u.Kind == kernel.ChainUnit && t.chains[u.Name].want.Hook == nil) {
			out = append(out, u)
		}
		delete(among, u)
	}
	for _, u := range sortedUnits(among) {
		if u.Kind == kernel.SetUnit && t.wants(u) {
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
func (t *Table) differing(anew bool) map[kernel.Unit]bool {
	out := map[kernel.Unit]bool{}
	for _, c := range t.chains {
		if anew && c.want != nil || t.differs(c) {
			out[kernel.Unit{Kind: kernel.ChainUnit, Name: c.name}] = true
		}
	}
	for _, s := range t.sets {
		own := kernel.Unit{Kind: kernel.SetUnit, Name: s.name}
		deletes, adds := s.members.diff()
		switch {
		case !s.wanted:
			if s.have != nil {
				out[own] = true
			}
		case anew || s.have == nil || s.have.reload || !s.shape.Verdicts && len(deletes)+len(adds) > 0:
			out[own] = true
		}
		if !s.wanted || !s.shape.Verdicts {
			continue
		}
		for _, c := range append(deletes, adds...) {
			out[kernel.Unit{Kind: kernel.EntryUnit, Name: s.name, Entry: c.Member}] = true
		}
		if anew {
			for m := range s.members.want {
				out[kernel.Unit{Kind: kernel.EntryUnit, Name: s.name, Entry: m}] = true
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
	return c.have.Base != kernel.BaseOf(c.want.Hook) || !hashesAre(c.checked(&t.digests), hashes)
}

// walk returns the chains, and the entries of the maps that they ask, in the order
// in which packets can come to them.
func (t *Table) walk() []kernel.Unit {
	var out, queue []kernel.Unit
	seen := map[kernel.Unit]bool{}
	reach := func(u kernel.Unit) {
		if !seen[u] {
			seen[u] = true
			queue = append(queue, u)
		}
	}
	for _, u := range sortedUnits(t.vital()) {
		if u.Kind == kernel.ChainUnit {
			reach(u)
		}
	}
	for len(queue) > 0 {
		u := queue[0]
		queue = queue[1:]
		c := t.chains[u.Name]
		if u.Kind == kernel.SetUnit {
			for _, e := range t.set(u.Name).members.sorted() {
				out = append(out, kernel.Unit{Kind: kernel.EntryUnit, Name: u.Name, Entry: e.Member})
				if target := tables.Target(e.Verdict); target != "" {
					reach(kernel.Unit{Kind: kernel.ChainUnit, Name: target})
				}
			}
			continue
		}
		if c == nil || c.want == nil {
			continue
		}
		out = append(out, u)
		for u := range references(c.want.Rules) {
			if u.Kind == kernel.ChainUnit || t.set(u.Name).shape.Verdicts {
				reach(u)
			}
		}
	}
	return out
}

func sortedUnits(units map[kernel.Unit]bool) []kernel.Unit {
	out := make([]kernel.Unit, 0, len(units))
	for u := range units {
		out = append(out, u)
	}
	slices.SortFunc(out, kernel.Unit.Compare)
	return out
}
