package backend

import (
	"strings"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
)

// Counted has the counters of a backend's rules, by policy and rule.
type Counted map[RuleKey]control.RuleHits

// RuleKey names a rule: "shop/db" and "ingress[0]".
type RuleKey struct{ Policy, Rule string }

// DeniedKey is not that of a rule: its entry counts all packets that policy denies in a
// direction. A caller that wants it has to add it. The switch has a counter for each isolated
// pod and each rule that denies, with more words in RuleKey.Rule.
func DeniedKey(d model.Direction) RuleKey { return keyOf(rules.DeniedComment(d)) }

// RejectedKey is as DeniedKey, for the packets that policy rejects. The switch counts these with
// the denied ones.
func RejectedKey(d model.Direction) RuleKey { return keyOf(rules.RejectedComment(d)) }

func keyOf(comment string) RuleKey {
	what, direction, _ := strings.Cut(comment, " ")
	return RuleKey{what, direction}
}

// add adds packets to the rule with this comment. The comment has the two names, which the
// kernel may cut. add leaves out a comment that fits no rule, or several.
func (c Counted) add(comment string, packets uint64) {
	key, found := c.find(comment)
	if found {
		h := c[key]
		h.Connections += packets
		c[key] = h
	}
}

// addHits adds the counters of a rule in the switch. Several rules there can be parts of one
// rule of a policy.
func (c Counted) addHits(key RuleKey, h policyflows.Hits) {
	sum := c[key]
	packets := h.Packets
	if sum.Packets != nil {
		packets += *sum.Packets
	}
	sum.Connections, sum.Packets = sum.Connections+h.Sessions, &packets
	c[key] = sum
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

// shortestCut is less than the length that the kernel keeps of a comment after its hash.
const shortestCut = 100
