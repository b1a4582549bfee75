package backend

import (
	"strings"

	"github.com/felixlike/felixlike/felixlike/control"
)

// Counted is what the rules of a backend have counted, by policy and rule.
type Counted map[RuleKey]control.RuleHits

// RuleKey names a rule: "shop/db" and "ingress[0]".
type RuleKey struct{ Policy, Rule string }

// add counts packets for a rule by its comment, which is the two names, or as much
// of them as the kernel keeps. A comment that fits no rule, or several, is left out.
func (c Counted) add(comment string, packets uint64) {
	key, found := c.find(comment)
	if found {
		h := c[key]
		h.Connections += packets
		c[key] = h
	}
}

func (c Counted) find(comment string) (RuleKey, bool) {
	policy, rule, _ := strings.Cut(comment, " ")
	if _, known := c[RuleKey{policy, rule}]; known {
		return RuleKey{policy, rule}, true
	}
	var match RuleKey
	matches := 0
	if len(comment) > shortestCut {
		for k := range c {
			if strings.HasPrefix(k.Policy+" "+k.Rule, comment) {
				match = k
				matches++
			}
		}
	}
	return match, matches == 1
}

// shortestCut is less than what the kernel keeps of a comment behind its hash.
const shortestCut = 100
