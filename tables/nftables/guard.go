package nftables

import "github.com/felixlike/felixlike/tables"

// raiseGuard makes the table anew with nothing but the guard, in a transaction
// of its own: what follows may take any number of them, and meanwhile the guard
// decides. Nobody wants its chains, so the plan removes them where it brings
// the base chains in their place.
func (t *Table) raiseGuard(result *tables.Result, first ...op) error {
	p := &plan{rules: map[string][]kernelRule{}, tail: append(first, op{kind: addTable})}
	for _, want := range t.options.Guard {
		c := &chain{name: want.Name, want: &want}
		for _, r := range want.Rules {
			c.hashes = append(c.hashes, r.Hash())
		}
		p.writeBase(c)
	}
	if err := t.send(p.tail, result); err != nil {
		return err
	}
	result.RulesAdded += p.result.RulesAdded
	raised := &kernelState{exists: true, chains: map[string]*kernelChain{}}
	for _, want := range t.options.Guard {
		raised.chains[want.Name] = &kernelChain{base: base(want.Hook), rules: p.rules[want.Name]}
	}
	t.adopt(raised)
	t.trusted = true
	return nil
}

// wake undoes the dormant flag, in a transaction of its own: the kernel takes
// no new base chains in the one that does.
func (t *Table) wake(result *tables.Result) error {
	if err := t.send([]op{{kind: addTable}}, result); err != nil {
		return err
	}
	t.dormant = false
	return nil
}
