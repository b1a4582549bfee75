package policy

import (
	"fmt"

	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// Limits for one direction of a policy (docs/LIMITS.md has the costs). Above a limit the
// direction of a NetworkPolicy allows nothing and its pods stay isolated, and that of a
// ClusterNetworkPolicy fails closed: one object must not delay the others.
const (
	// MaxPrefixes bounds the CIDRs and exceptions of all blocks.
	MaxPrefixes = 30_000
	// MaxAlternatives bounds the rules of netfilter in one family: for each rule of the
	// policy, its peers times its ports. A selector is a peer; so are all blocks of
	// a rule together.
	MaxAlternatives = 10_000
	// MaxSelectors bounds the distinct selectors and named ports, each of which is a
	// set: the kernel's time to make sets grows with the square of their number.
	MaxSelectors = 1_000
)

// bounded returns the rules of a direction, or none if they exceed a limit.
func (c *compiler) bounded(d model.Direction, rules []model.Rule) []model.Rule {
	if reason := c.exceeded(rules); reason != "" {
		c.add("spec."+d.String(), "%s; no rule of this direction applies, and the pods are isolated", reason)
		return nil
	}
	return rules
}

// exceeded says which limit the rules of a direction exceed, if they do.
func (c *compiler) exceeded(rules []model.Rule) string {
	var prefixes, alternatives int
	var groups smallmap.Set[model.GroupID]
	for i := range rules {
		r := &rules[i]
		alternatives += max(1, len(r.Peers)) * (max(1, len(r.Ports)) + len(r.NamedPorts))
		for _, ids := range [...][]model.GroupID{r.Peers, r.NamedPorts} {
			for _, id := range ids {
				if groups.Has(id) {
					continue
				}
				groups.Add(id)
				if g := c.defined.Get(id); g.kind == model.Networks {
					prefixes += len(g.networks.members)
				}
			}
		}
	}
	selectors := 0
	for id := range groups.All() {
		if id.Kind() != model.Networks {
			selectors++
		}
	}
	switch {
	case prefixes > MaxPrefixes:
		return fmt.Sprintf("%d CIDRs and exceptions, the limit is %d", prefixes, MaxPrefixes)
	case alternatives > MaxAlternatives:
		return fmt.Sprintf("%d combinations of peers and ports in all rules, the limit is %d", alternatives, MaxAlternatives)
	case selectors > MaxSelectors:
		return fmt.Sprintf("%d distinct selectors and named ports, the limit is %d", selectors, MaxSelectors)
	}
	return ""
}
