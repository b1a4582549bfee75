package rules

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Applied renders the chain for endpoints to which exactly these policies
// apply in the direction, and returns it with the verdict that dispatch has to
// give for such an endpoint's addresses. Endpoints share the chain: a thousand
// pods with the same policies are one chain and a thousand entries. Without
// policies there is no chain.
//
// hasRules reports whether a policy has rules in the direction; one without
// isolates, but has no chain. The returned verdict is final for ingress. Egress
// returns allowed packets with MarkJudged and drops the others. Later rules of the
// chain match only packets without that mark.
//
// All tiers are in one chain: an admin policy is evaluated unless one before it
// passed the packet on. A chain of its own for the lower tiers would cost a
// level in either direction, and the kernel's nf_tables takes no path of more
// than 16 chains, gotos counted (NFT_JUMP_STACK_SIZE).
func (r *Renderer) Applied(d model.Direction, a model.Applied, hasRules func(model.PolicyID) bool) (tables.Chain, tables.Action) {
	if a.Empty() {
		return tables.Chain{}, dispatchAllowed(d)
	}
	identity := AppliedIdentity(d, a)
	c := tables.Chain{Name: r.AppliedChainBy(identity, d, a), Origin: tables.OfList{Identity: identity}}
	for id := range a.All() {
		if _, refused := r.policies.Refused(PolicySide{id, d}); refused && hasRules(id) {
			// The chain of that name belongs to another policy: do not jump to it.
			c.Rules = []tables.Rule{{Action: Deny(d), Comment: id.String() + " has no chain: another policy has its name"}}
			return c, tables.Goto{Chain: c.Name}
		}
	}
	if len(a.Admin) > 0 {
		c.Rules = append(c.Rules, tables.Rule{Action: tables.SetMark{Value: 0, Mask: MarkPass}, Comment: "admin tier"})
	}
	c.Rules = append(c.Rules, r.admin(d, a.Admin, hasRules)...)
	c.Rules = append(c.Rules, r.lowerTiers(d, a, hasRules)...)
	return c, tables.Goto{Chain: c.Name}
}

// admin renders the jumps to the policies of the admin tier.
func (r *Renderer) admin(d model.Direction, ids []model.PolicyID, hasRules func(model.PolicyID) bool) []tables.Rule {
	var rules []tables.Rule
	for _, id := range ids {
		if hasRules(id) {
			rules = append(rules, tables.Rule{
				Matches: []tables.Match{undecided(d)},
				Action:  tables.Jump{Chain: r.PolicyChain(id, d)}, Comment: id.String(),
			})
		}
	}
	return rules
}

// lowerTiers renders the tiers after the admin tier: the NetworkPolicies, which
// end in a drop, or the baseline tier, which ends in an allow.
func (r *Renderer) lowerTiers(d model.Direction, a model.Applied, hasRules func(model.PolicyID) bool) []tables.Rule {
	ids, end := a.Baseline, tables.Rule{Action: r.allow(d), Comment: "default allow"}
	if a.Isolated() {
		ids, end = a.NetworkPolicies, tables.Rule{Action: Deny(d), Comment: "isolated " + d.String()}
	}
	var rules []tables.Rule
	for _, id := range ids {
		if hasRules(id) {
			rules = append(rules, tables.Rule{Action: tables.Jump{Chain: r.PolicyChain(id, d)}, Comment: id.String()})
		}
	}
	rules = append(rules, end)
	if d == model.Egress {
		for i := range rules {
			if i > 0 || len(a.Admin) > 0 {
				rules[i].Matches = []tables.Match{notJudged()}
			}
		}
	}
	return rules
}

// undecided matches packets that no policy of the admin tier has allowed, denied or
// passed on.
func undecided(d model.Direction) tables.Match {
	if d == model.Egress {
		return tables.MatchMark{Value: 0, Mask: MarkPass | MarkJudged}
	}
	return tables.MatchMark{Value: MarkPass, Mask: MarkPass, Negated: true}
}
