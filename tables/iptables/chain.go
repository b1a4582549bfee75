package iptables

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// chain is one chain: its desired content, the places where it has to be, and the
// kernel's content there.
type chain struct {
	name    string
	desired *tables.Chain // nil: not desired
	hashes  []string      // of the desired rules
	// targets are the chains that the desired rules jump or go to, by family.
	targets map[model.Family][]string
	// refs counts the desired rules of other chains that jump or go here.
	refs int
	// places are those with base chains that lead to the chain.
	places   placeSet
	observed [places]*observedChain
}

// observedChain is a chain as the kernel holds it in one place. The hash of a rule is
// empty if it is not a rule that we would write.
type observedChain struct {
	hashes []string
	// pinned says that rules of other programs jump here, so the chain cannot be deleted.
	pinned bool
}

// content is the desired content of a chain in one place.
type content struct {
	hashes []string
	rules  []tables.Rule
}

// desiredContent returns the desired rules that belong into a place.
func (c *chain) desiredContent(p place) content {
	var out content
	for i, r := range c.desired.Rules {
		if inFamily(r, p.family()) {
			out.hashes = append(out.hashes, c.hashes[i])
			out.rules = append(out.rules, r)
		}
	}
	return out
}

// dropOnly is the content of a closed chain. The nat tables drop nothing: there it is
// empty, and no address is rewritten.
func dropOnly(p place, why string) content {
	if p.table() == tableNAT {
		return content{}
	}
	c := tables.Chain{Rules: []tables.Rule{{Action: tables.Drop{}, Comment: "refused: " + why[:min(len(why), longestWhy)]}}}
	return content{hashes: c.Hashes(), rules: c.Rules}
}

// longestWhy bounds the reason in the comment of the drop rule.
const longestWhy = 60

// unused reports whether the chain is neither desired, nor referred to, nor in the kernel.
func (c *chain) unused() bool {
	return c.desired == nil && c.refs == 0 && c.observed == [places]*observedChain{}
}

// targetsOf returns the chains that the rules jump or go to in each family, each once,
// in order of first use.
func targetsOf(rules []tables.Rule) map[model.Family][]string {
	targets := map[model.Family][]string{}
	for _, f := range model.Families() {
		seen := map[string]bool{}
		for _, r := range rules {
			target := tables.Target(r.Action)
			if target != "" && !seen[target] && inFamily(r, f) {
				seen[target] = true
				targets[f] = append(targets[f], target)
			}
		}
	}
	return targets
}

// inFamily reports whether the rule belongs into the tables of the family. A rule of the
// other family does not, nor does a rule that no packet matches.
func inFamily(r tables.Rule, f model.Family) bool {
	for _, m := range r.Matches {
		if p, ok := m.(tables.MatchPrefix); ok && p.Negated && p.Prefix.Bits() == 0 {
			return false
		}
	}
	family := r.Family()
	return family == 0 || family == f
}

func sameHook(a, b *tables.Hook) bool {
	return a == b || a != nil && b != nil && *a == *b
}
