package denied

import (
	"fmt"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// LogRules returns the rules with Log of some policies.
func LogRules(policies map[model.PolicyID]*model.Policy) map[rules.LogKey]LogRule {
	all := map[rules.LogKey]LogRule{}
	for id, p := range policies {
		for _, d := range model.Directions() {
			for _, r := range p.Rules(d) {
				if r.Log {
					all[rules.NewLogKey(id, d, &r)] = LogRule{id, d, r}
				}
			}
		}
	}
	return all
}

// Logged names the ends of a report's packet, and the rule that decided it. It returns an error
// if there is no such rule any more.
func (v *View) Logged(r Report) (control.Logged, error) {
	rule, known := v.Logs[r.Log]
	if !known {
		return control.Logged{}, fmt.Errorf("no rule has the key %s any more", r.Log)
	}
	p, err := Parse(r.Packet)
	if err != nil {
		return control.Logged{}, err
	}
	object := rule.Policy.Object()
	l := control.Logged{
		At: r.At, Policy: control.LoggedPolicy{Kind: object.Kind, Namespace: object.Namespace, Name: object.Name},
		Rule: rule.Rule.Name, RuleName: rule.Rule.Title, Tier: rule.Policy.Tier.String(), Verdict: rule.Rule.Action.String(), Direction: rule.Direction.String(), LogLabel: rule.Rule.LogLabel,
		From: v.End(p.Source), To: v.End(p.Destination), Protocol: p.Protocol.String(), SourcePort: p.SourcePort, Port: p.Port,
	}
	if p.Protocol == model.ICMP || p.Protocol == model.ICMPv6 {
		l.ICMP = &control.ICMPType{Type: p.Type, Code: p.Code}
	}
	return l, nil
}
