package maps

import "github.com/felixlike/felixlike/tables/nftables/kernel"

// firstLoad is how many elements of a new table come in one transaction. The kernel holds its lock meanwhile, and other programs
// wait.
const firstLoad = 20_000

// plan returns the transactions. Elements go before their chains, and come after them.
func (t *Table) plan() [][]kernel.Op {
	var objects, deletes, rules, adds, base, removals []kernel.Op
	elements := 0
	sets := t.sortedSets()
	for _, s := range sets {
		if !s.exists {
			objects = append(objects, kernel.Op{Kind: kernel.AddLarge, Name: s.Name, Large: &s.LargeSet})
		}
		gone, come := s.difference()
		deletes = append(deletes, s.ops(kernel.DeleteElements, gone)...)
		adds = append(adds, s.ops(kernel.AddElements, come)...)
		elements += len(come)
	}
	for _, c := range t.sortedChains() {
		if !c.dirty {
			continue
		}
		to := &rules
		if c.Hook != nil {
			to = &base
		}
		if !c.exists {
			add := kernel.Op{Kind: kernel.AddChain, Name: c.Name, Hook: c.Hook}
			if c.Hook == nil {
				objects = append(objects, add)
			} else {
				base = append(base, add)
			}
		} else {
			*to = append(*to, kernel.Op{Kind: kernel.FlushChain, Name: c.Name})
		}
		for i := range c.Rules {
			*to = append(*to, kernel.Op{Kind: kernel.AddRule, Name: c.Name, Index: i, Rule: &c.Rules[i], Hash: c.hashes[i]})
		}
	}
	for _, name := range t.state.chains {
		if t.chains[name] == nil {
			removals = append(removals, kernel.Op{Kind: kernel.FlushChain, Name: name})
		}
	}
	for _, name := range t.state.chains {
		if t.chains[name] == nil {
			removals = append(removals, kernel.Op{Kind: kernel.DeleteChain, Name: name})
		}
	}
	for _, name := range t.state.sets {
		if t.sets[name] == nil {
			removals = append(removals, kernel.Op{Kind: kernel.DeleteSet, Name: name})
		}
	}
	if t.state.rebuild != "" {
		objects = append([]kernel.Op{{Kind: kernel.DeleteTable}, {Kind: kernel.AddTable}}, objects...)
	} else if !t.state.exists {
		objects = append([]kernel.Op{{Kind: kernel.AddTable}}, objects...)
	}
	if t.state.exists || elements <= firstLoad {
		return transactions(concat(objects, deletes, rules, adds, base, removals))
	}
	all := transactions(concat(objects, rules))
	for len(adds) > 0 {
		n := min(len(adds), firstLoad/kernel.ElementsPerMessage)
		all, adds = append(all, adds[:n]), adds[n:]
	}
	return append(all, base)
}

func concat(parts ...[]kernel.Op) (all []kernel.Op) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func transactions(ops []kernel.Op) [][]kernel.Op {
	if len(ops) == 0 {
		return nil
	}
	return [][]kernel.Op{ops}
}
