package backend

import (
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
func DeniedKey(d model.Direction) RuleKey { return RuleKey{"denied", d.String()} }

// RejectedKey is as DeniedKey, for the packets that policy rejects. The switch counts these with
// the denied ones.
func RejectedKey(d model.Direction) RuleKey { return RuleKey{"rejected", d.String()} }

// counterKeys names the rules that have a counter in a table of netfilter.
type counterKeys map[rules.Counter]RuleKey

// newCounterKeys returns the names for the rules of policies, and for those that drop.
func newCounterKeys(r *rules.Renderer, policies []*model.Policy) counterKeys {
	k := counterKeys{}
	for _, d := range model.Directions() {
		for _, p := range policies {
			policy := p.ID.String()
			r.PolicyCounters(p, d, func(rule *model.Rule, c rules.Counter) { k[c] = RuleKey{policy, rule.Name} })
		}
		for _, c := range rules.Ends(rules.Denied(d, false)) {
			k[c] = DeniedKey(d)
		}
		for _, c := range rules.Ends(r.Rejected(d, false)) {
			k[c] = RejectedKey(d)
		}
	}
	return k
}

// addTo returns a function that adds the packets of a counter to the entry of its rule.
func (k counterKeys) addTo(c Counted) func(of rules.Counter, packets uint64) {
	return func(of rules.Counter, packets uint64) {
		key, known := k[of]
		if !known {
			return
		}
		if h, asked := c[key]; asked {
			h.Connections += packets
			c[key] = h
		}
	}
}

// switchRules names the rules that have counters in the switch.
func switchRules(policies []*model.Policy) map[policyflows.RuleID]RuleKey {
	all := map[policyflows.RuleID]RuleKey{}
	for _, p := range policies {
		for _, d := range model.Directions() {
			for i, r := range p.Rules(d) {
				all[policyflows.RuleID{Policy: p.ID, Direction: d, Index: i}] = RuleKey{p.ID.String(), r.Name}
			}
		}
	}
	return all
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
