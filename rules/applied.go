package rules

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Applied renders the chains for endpoints to which exactly these policies
// apply in the direction, and returns them with the verdict that dispatch has
// to give for such an endpoint's addresses. Endpoints share the chains: a
// thousand pods with the same policies are one chain and a thousand entries.
//
// hasRules reports whether a policy has rules in the direction; one without
// isolates, but has no chain to ask. The returned verdict is final: control
// never comes back to the dispatching chain.
func (r *Renderer) Applied(d model.Direction, a model.Applied, hasRules func(model.PolicyID) bool) ([]tables.Chain, tables.Action) {
	if a.Empty() {
		return nil, allow(d)
	}
	main := tables.Chain{Name: r.AppliedChain(d, a)}
	if len(a.Admin) == 0 {
		main.Rules = r.lowerTiers(d, a, hasRules)
		return []tables.Chain{main}, tables.Goto{Chain: main.Name}
	}
	lower := tables.Chain{Name: r.name("lower", main.Name, main.Name), Rules: r.lowerTiers(d, a, hasRules)}
	main.Rules = append(main.Rules, tables.Rule{Action: tables.SetMark{Value: 0, Mask: MarkPass}, Comment: "admin tier"})
	for _, id := range a.Admin {
		if !hasRules(id) {
			continue
		}
		main.Rules = append(main.Rules,
			tables.Rule{Action: tables.Jump{Chain: r.PolicyChain(id, d)}, Comment: id.String()},
			tables.Rule{
				Matches: []tables.Match{tables.MatchMark{Value: MarkPass, Mask: MarkPass}},
				Action:  tables.Goto{Chain: lower.Name}, Comment: id.String() + " passed",
			})
	}
	main.Rules = append(main.Rules, tables.Rule{Action: tables.Goto{Chain: lower.Name}, Comment: "admin tier undecided"})
	return []tables.Chain{main, lower}, tables.Goto{Chain: main.Name}
}

// lowerTiers renders what follows the admin tier: the NetworkPolicies, which
// end in a drop, or the baseline tier, which ends in an allow.
func (r *Renderer) lowerTiers(d model.Direction, a model.Applied, hasRules func(model.PolicyID) bool) []tables.Rule {
	ids, end := a.Baseline, tables.Rule{Action: allow(d), Comment: "default allow"}
	if a.Isolated() {
		ids, end = a.NetworkPolicies, tables.Rule{Action: tables.Drop{}, Comment: "isolated " + d.String()}
	}
	var rules []tables.Rule
	for _, id := range ids {
		if hasRules(id) {
			rules = append(rules, tables.Rule{Action: tables.Jump{Chain: r.PolicyChain(id, d)}, Comment: id.String()})
		}
	}
	return append(rules, end)
}
