package tablestest

import "github.com/felixlike/felixlike/tables"

// Walks returns the number of rules in the chains, and the number of times the kernel visits
// a rule when it validates them. Kernels before the patch "nf_tables: avoid chain
// re-validation if possible" (December 2025) follow every path from the base chains
// at every change of a rule. Each jump, goto and verdict map element that leads to a
// chain walks that chain once more.
func Walks(chains []tables.Chain, elements map[string][]tables.Action) (rules, visits int) {
	byName := make(map[string]*tables.Chain, len(chains))
	for i, c := range chains {
		byName[c.Name] = &chains[i]
		rules += len(c.Rules)
	}
	known := map[string]int{}
	var walk func(name string) int
	walk = func(name string) int {
		c := byName[name]
		if n, ok := known[name]; ok || c == nil {
			return n
		}
		n := 0
		for _, r := range c.Rules {
			n++
			if d, ok := r.Action.(tables.Dispatch); ok {
				for _, verdict := range elements[d.Map] {
					n += walk(tables.Target(verdict))
				}
				continue
			}
			n += walk(tables.Target(r.Action))
		}
		known[name] = n
		return n
	}
	for _, c := range chains {
		if c.Hook != nil {
			visits += walk(c.Name)
		}
	}
	return rules, visits
}
