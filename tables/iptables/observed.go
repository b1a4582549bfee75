package iptables

import (
	"github.com/felixlike/felixlike/model"
)

// observed is the known state of the kernel.
type observed struct {
	*objects
	state map[model.Family]*familyState
	// learned are texts of rules that the tools print in another way than we
	// expect, by place and hash.
	learned map[learnedKey]string
	// count is the number of rules in our chains, if counted.
	count   int
	counted bool
}

// familyState is the known state of the kernel's tables of one family.
type familyState struct {
	// known says that the observed state of the chains, and the entries, match the
	// kernel.
	known bool
	// trusted says that they matched before known became false: then all differences are
	// foreign changes.
	trusted bool
	// fresh says that they were read in this Apply.
	fresh bool
	// all asks for a comparison of all chains, not only of dirty ones.
	all     bool
	entries map[entry]*entered
	// altered are the rules that a read has found in another wording than ours.
	altered map[learnedKey]string
	// hidden are the tables that the tool cannot show.
	hidden []kernelTable
}

// learnedKey is one rule of a chain in a place.
type learnedKey struct {
	place       place
	chain, hash string
}

func newObserved(o *objects) *observed {
	known := &observed{objects: o, state: map[model.Family]*familyState{}, learned: map[learnedKey]string{}}
	for _, f := range o.families {
		known.state[f] = &familyState{}
	}
	return known
}

// begin begins an Apply: nothing has been read in it.
func (o *observed) begin() {
	for _, s := range o.state {
		s.fresh = false
	}
}

// invalidate forgets the known state of the kernel.
func (o *observed) invalidate() {
	for _, s := range o.state {
		s.known = false
	}
}

// distrust ends that differences from the known state are the work of other programs.
func (o *observed) distrust() {
	for _, s := range o.state {
		s.trusted = false
	}
}

// candidates returns the names of the chains that may differ from their desired state.
func (o *observed) candidates(f model.Family) []string {
	if o.state[f].all {
		return sorted(o.chains)
	}
	return sorted(o.dirty)
}

// written records the kernel's state after a script.
func (o *observed) written(f model.Family, s *script) {
	for _, c := range s.changes {
		c.chain.observed[c.place] = c.now
	}
	o.counted = o.counted && len(s.changes) == 0
	state := o.state[f]
	for e, now := range s.entries {
		state.entries[e] = now
		if len(now.texts) == 0 {
			delete(state.entries, e)
		}
	}
}

// settle records that the kernel holds the desired state. It visits the chains only if
// any may have changed: an Apply after a change of members must not cost a walk over a
// thousand chains.
func (o *observed) settle() {
	changed := len(o.dirty) > 0
	clear(o.dirty)
	for _, s := range o.state {
		changed = changed || s.all
		s.all = false
	}
	if changed {
		o.dropUnused()
	}
}

// unreadable names the tables that the tool cannot show, with the reason.
func (o *observed) unreadable() (all []string) {
	for _, f := range o.families {
		for _, k := range o.state[f].hidden {
			all = append(all, placeOf(f, k).unreadable())
		}
	}
	return all
}

// rules counts our rules in the kernel.
func (o *observed) rules() int {
	if !o.counted {
		o.count, o.counted = 0, true
		for _, c := range o.chains {
			for _, now := range c.observed {
				if now != nil {
					o.count += len(now.hashes)
				}
			}
		}
	}
	n := o.count
	for _, s := range o.state {
		for _, e := range s.entries {
			n += len(e.texts)
		}
	}
	return n
}

// sizes counts the entries of the legacy variant's tables that are ours. A chain has an
// entry at its head and one at its end besides its rules.
func (o *observed) sizes() (counts [places]int) {
	for _, c := range o.chains {
		for p, now := range c.observed {
			if now != nil {
				counts[p] += len(now.hashes) + 2
			}
		}
	}
	for f, s := range o.state {
		for e, now := range s.entries {
			counts[placeOf(f, e.table)] += len(now.texts)
		}
	}
	return counts
}
