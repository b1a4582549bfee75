package nftables

import (
	"context"
	"slices"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// faultFinder finds the units that the kernel refuses without naming them.
type faultFinder struct {
	*objects
	quarantine *quarantine
	digests    *expression.Digester
	table      programmer
}

// programmer programs the table for the faultFinder.
type programmer interface {
	// learn updates the known state of the kernel.
	learn(result *tables.Result) (full bool, err error)
	// attempt programs every unit that is not quarantined or on hold: see Table.attempt.
	attempt(ctx context.Context, again bool, result *tables.Result) error
	// commitNothing commits a transaction that changes nothing.
	commitNothing() error
}

// inForce reports whether the kernel has something of a chain or an entry that
// packets may come to.
func (f *faultFinder) inForce(u kernel.Unit) bool {
	return f.inKernel(u) && !(u.Kind == kernel.ChainUnit && f.chains[u.Name].idle())
}

// candidates returns the units that a refused transaction can concern, or all of them for a table that is
// made anew. They come in the order of the tries: sets; chains, each before those that it leads to, so that
// the kernel checks each one; deletions.
func (f *faultFinder) candidates(anew bool, required map[kernel.Unit]bool) []kernel.Unit {
	among := f.differing(anew)
	var out []kernel.Unit
	take := func(u kernel.Unit) {
		if among[u] && f.quarantine.refused[u] == nil && (!required[u] || u.Kind == kernel.ChainUnit && f.chains[u.Name].desired.Hook == nil) {
			out = append(out, u)
		}
		delete(among, u)
	}
	for _, u := range sortedUnits(among) {
		if u.Kind == kernel.SetUnit && f.isDesired(u) {
			take(u)
		}
	}
	for _, u := range f.walk() {
		take(u)
	}
	rest := sortedUnits(among)
	for _, u := range rest {
		if f.isDesired(u) {
			take(u)
		}
	}
	for _, u := range slices.Backward(rest) { // chains, then the sets they refer to
		take(u)
	}
	return out
}

// differing returns the units that are not in the kernel as desired; of a table
// that is made anew, all.
func (f *faultFinder) differing(anew bool) map[kernel.Unit]bool {
	out := map[kernel.Unit]bool{}
	for _, c := range f.chains {
		if anew && c.desired != nil || f.differs(c) {
			out[kernel.Unit{Kind: kernel.ChainUnit, Name: c.name}] = true
		}
	}
	for _, s := range f.sets {
		own := kernel.Unit{Kind: kernel.SetUnit, Name: s.name}
		deletes, adds := s.members.diff()
		switch {
		case !s.desired:
			if s.observed != nil {
				out[own] = true
			}
		case anew || s.observed == nil || s.observed.reload || !s.shape.Verdicts && len(deletes)+len(adds) > 0:
			out[own] = true
		}
		if !s.desired || !s.shape.Verdicts {
			continue
		}
		for _, c := range append(deletes, adds...) {
			out[kernel.Unit{Kind: kernel.EntryUnit, Name: s.name, Entry: c.Member}] = true
		}
		if anew {
			for m := range s.members.desired {
				out[kernel.Unit{Kind: kernel.EntryUnit, Name: s.name, Entry: m}] = true
			}
		}
	}
	return out
}

// differs reports whether the kernel does not hold the chain as desired.
func (f *faultFinder) differs(c *chain) bool {
	if c.desired == nil || c.observed == nil {
		return c.desired != nil || c.observed != nil
	}
	_, hashes := c.goal()
	return c.observed.Base != kernel.BaseOf(c.desired.Hook) || !hashesAre(c.checked(f.digests), hashes)
}

// walk returns the chains, and the entries of the maps that they ask, in the order
// in which packets can come to them.
func (f *faultFinder) walk() []kernel.Unit {
	var out, queue []kernel.Unit
	seen := map[kernel.Unit]bool{}
	reach := func(u kernel.Unit) {
		if !seen[u] {
			seen[u] = true
			queue = append(queue, u)
		}
	}
	for _, u := range sortedUnits(f.required()) {
		if u.Kind == kernel.ChainUnit {
			reach(u)
		}
	}
	for len(queue) > 0 {
		u := queue[0]
		queue = queue[1:]
		c := f.chains[u.Name]
		if u.Kind == kernel.SetUnit {
			for _, e := range f.set(u.Name).members.sorted() {
				out = append(out, kernel.Unit{Kind: kernel.EntryUnit, Name: u.Name, Entry: e.Member})
				if target := tables.Target(e.Verdict); target != "" {
					reach(kernel.Unit{Kind: kernel.ChainUnit, Name: target})
				}
			}
			continue
		}
		if c == nil || c.desired == nil {
			continue
		}
		out = append(out, u)
		for u := range references(c.desired.Rules) {
			if u.Kind == kernel.ChainUnit || f.set(u.Name).shape.Verdicts {
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
