package nftables

import (
	"slices"

	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// take makes the found chain the observed state of c. Its rules' bodies are compared later, when they matter:
// see checked.
func (c *chain) take(found *kernel.Chain) {
	if found == nil {
		c.write(nil)
		return
	}
	c.echoed, c.claims, c.observed = c.known(), true, found
}

// write makes the written chain the observed state of c.
func (c *chain) write(written *kernel.Chain) {
	c.observed, c.claims, c.echoed = written, false, nil
}

// known returns the rules that the kernel has echoed, as far as is known.
func (c *chain) known() []kernel.Rule {
	switch {
	case c.observed == nil:
		return nil
	case c.claims:
		return c.echoed
	}
	return c.observed.Rules
}

// checked returns the kernel's rules of the chain. A rule that was read with the hash of a desired rule, but
// with another body, is foreign: another program has swapped it, or an earlier version of this program has
// encoded it in another way. It is returned without its hash, so it will be replaced.
//
// The expected body is predicted from the desired rule. If a kernel returns rules in an unexpected form, the
// rules are written anew once, on the first full read of a process. From then on the echoed body of the rule
// is accepted, too: it comes from the transaction that wrote the rule.
func (c *chain) checked(d *expression.Digester) []kernel.Rule {
	if c.observed == nil {
		return nil
	}
	if !c.claims || c.desired == nil {
		return c.observed.Rules
	}
	wanted, hashes := c.goal()
	indexOf := indices(hashes)
	out := c.observed.Rules
	for i, r := range c.observed.Rules {
		index, claims := indexOf(i, r.Hash)
		if !claims || i < len(c.echoed) && c.echoed[i] == r {
			continue
		}
		predicted, err := d.Predict(wanted[index])
		if err == nil && r.Digest == predicted || slices.ContainsFunc(c.echoed, func(o kernel.Rule) bool { return o.Hash == r.Hash && o.Digest == r.Digest }) {
			continue
		}
		if &out[0] == &c.observed.Rules[0] {
			out = slices.Clone(out)
		}
		out[i].Hash = ""
	}
	return out
}

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
