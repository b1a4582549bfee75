package nftables

import (
	"slices"

	"github.com/felixlike/felixlike/tables/nftables/expression"
)

// take makes the chain that was found what the kernel holds of c. What its rules
// claim to be by their comments is looked into when it matters: see checked.
func (c *chain) take(found *kernelChain) {
	if found != nil {
		found.claims = true
		found.echoed = c.have.known()
	}
	c.have = found
}

// known returns the rules that the kernel has echoed, as far as is known.
func (k *kernelChain) known() []kernelRule {
	switch {
	case k == nil:
		return nil
	case k.claims:
		return k.echoed
	}
	return k.rules
}

// checked returns the rules that the kernel holds of the chain. One that was read
// and carries the hash of a rule to be, but not its body, is none of ours: somebody
// has swapped it, or an earlier version of this program has encoded it in
// another way. It is without its hash here, so it will be replaced.
//
// What body to expect is predicted from the rule to be. If a kernel returns rules
// in a form that the prediction does not foresee, the rules are written anew once,
// on the first full read of a process; from then on the body that the kernel has
// echoed for the rule is good, too, because it was seen in the very transaction
// that wrote it.
func (c *chain) checked(d *expression.Digester) []kernelRule {
	if c.have == nil || !c.have.claims || c.want == nil {
		return c.have.all()
	}
	wanted, hashes := c.goal()
	indexOf := indices(hashes)
	out := c.have.rules
	for i, r := range c.have.rules {
		index, claims := indexOf(i, r.hash)
		if !claims || i < len(c.have.echoed) && c.have.echoed[i] == r {
			continue
		}
		predicted, err := d.Predict(wanted[index])
		if err == nil && r.digest == predicted || slices.ContainsFunc(c.have.echoed, r.same) {
			continue
		}
		if &out[0] == &c.have.rules[0] {
			out = slices.Clone(out)
		}
		out[i].hash = ""
	}
	return out
}

// all returns the rules of a chain, if there is one.
func (k *kernelChain) all() []kernelRule {
	if k == nil {
		return nil
	}
	return k.rules
}

// same reports whether both are one rule written twice.
func (r kernelRule) same(o kernelRule) bool { return o.hash == r.hash && o.digest == r.digest }

// indices returns a function that finds a rule by its hash, first where the kernel
// has it.
func indices(hashes []string) func(i int, hash string) (int, bool) {
	var all map[string]int
	return func(i int, hash string) (int, bool) {
		if i < len(hashes) && hashes[i] == hash {
			return i, true
		}
		if hash == "" {
			return 0, false
		}
		if all == nil {
			all = make(map[string]int, len(hashes))
			for n, h := range hashes {
				all[h] = n
			}
		}
		n, ok := all[hash]
		return n, ok
	}
}
