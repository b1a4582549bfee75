package policy

import (
	"fmt"

	"github.com/felixlike/felixlike/model"
)

// Limits for one direction of a NetworkPolicy (docs/LIMITS.md has the costs). Above a
// limit the direction allows nothing and its pods stay isolated: one tenant's object
// must not delay the objects of others.
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
	var prefixes, alternatives int
	var groups set[model.GroupID]
	for i := range rules {
		r := &rules[i]
		alternatives += max(1, len(r.Peers)) * (max(1, len(r.Ports)) + len(r.NamedPorts))
		for _, ids := range [...][]model.GroupID{r.Peers, r.NamedPorts} {
			for _, id := range ids {
				if groups.has(id) {
					continue
				}
				groups.add(id)
				if g := c.defined.get(id); g.kind == model.Networks {
					prefixes += len(g.networks.members)
				}
			}
		}
	}
	selectors := 0
	for id := range groups.all() {
		if id.Kind() != model.Networks {
			selectors++
		}
	}
	field := "spec." + d.String()
	reason := ""
	switch {
	case prefixes > MaxPrefixes:
		reason = fmt.Sprintf("%d CIDRs and exceptions, the limit is %d", prefixes, MaxPrefixes)
	case alternatives > MaxAlternatives:
		reason = fmt.Sprintf("%d combinations of peers and ports in all rules, the limit is %d", alternatives, MaxAlternatives)
	case selectors > MaxSelectors:
		reason = fmt.Sprintf("%d distinct selectors and named ports, the limit is %d", selectors, MaxSelectors)
	default:
		return rules
	}
	c.add(field, "%s; no rule of this direction applies, and the pods are isolated", reason)
	return nil
}
