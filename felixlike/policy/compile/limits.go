package compile

import (
	"fmt"

	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// Limits for one direction of a policy (docs/reference/limits/size.md has the costs). One object must not
// delay the others. So above a limit, a direction of a NetworkPolicy allows nothing and
// its pods stay isolated; a direction of a ClusterNetworkPolicy fails closed.
const (
	// MaxPrefixes bounds the CIDRs and exceptions of all blocks.
	MaxPrefixes = 30_000
	// MaxAlternatives bounds the rules of netfilter in one family: for each rule of the
	// policy, its peers times its ports. Each selector is one peer, and all blocks of a
	// rule are one.
	MaxAlternatives = 10_000
	// MaxSelectors bounds the distinct selectors and named ports. Each is a set, and the
	// kernel's time to make sets grows with the square of their number.
	MaxSelectors = 1_000
)

// bounded returns the rules of a direction, or none if they exceed a limit.
func (c *compiler) bounded(d model.Direction, rules []model.Rule) []model.Rule {
	if reason := c.exceeded(rules); reason != "" {
		c.Add("spec."+d.String(), "%s; no rule of this direction applies, and the pods are isolated", reason)
		return nil
	}
	return rules
}

// exceeded returns the limit that the rules of a direction exceed as text, or "".
func (c *compiler) exceeded(rules []model.Rule) string {
	var prefixes, alternatives int
	var groups smallmap.Set[model.GroupID]
	for i := range rules {
		r := &rules[i]
		alternatives += max(1, peerCount(r)) * (max(1, len(r.Ports)) + len(r.NamedPorts))
		for _, ids := range [...][]model.GroupID{r.Peers, r.NamedPorts} {
			for _, id := range ids {
				if groups.Has(id) {
					continue
				}
				groups.Add(id)
				if g := c.defined.Get(id); g.Kind == model.Networks {
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

// peerCount counts the peers of a rule. Its blocks are one peer, also if they are one group
// for each family: a group of one family makes no rules for the other one.
func peerCount(r *model.Rule) int {
	count, networks := 0, 0
	for _, id := range r.Peers {
		if id.Kind() == model.Networks {
			networks = 1
		} else {
			count++
		}
	}
	return count + networks
}
