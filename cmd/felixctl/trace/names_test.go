package trace

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// titles names one rule.
type titles struct{ nameless }

func (titles) RuleName(policy, rule string) string {
	return map[string]string{"clusternetworkpolicy.crd.antrea.io/p ingress[0]": "no-ops"}[policy+" "+rule]
}

// TestRuleNames: the names that authors gave rules are in the verdict and in the steps. The place of
// a rule stays its identity.
func TestRuleNames(t *testing.T) {
	id := model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "p"}
	passed := oracle.RuleID{Policy: id, Rule: "ingress[1]", Title: "leave-web"}
	end := endOf("shop/db", oracle.Decision{Why: oracle.RuleDenies, Policy: id, Rule: "ingress[0]", Title: "no-ops", Passed: []oracle.RuleID{passed}}, nil)
	if end.Rule != "ingress[0]" || end.RuleName != "no-ops" {
		t.Errorf("end %+v", end)
	}
	j := &Judgement{Egress: End{Allowed: true}, Ingress: end}
	if want := "clusternetworkpolicy.crd.antrea.io/p ingress[0] (no-ops) denies it (passed on by clusternetworkpolicy.crd.antrea.io/p ingress[1] (leave-web))"; !strings.Contains(j.why(), want) {
		t.Errorf("got %s, want %s", j.why(), want)
	}
	steps := []Step{{Policy: "clusternetworkpolicy.crd.antrea.io/p", PolicyRule: "ingress[0]", Missed: []Miss{
		{Policy: "clusternetworkpolicy.crd.antrea.io/p", PolicyRule: "ingress[0]"}, {Policy: "clusternetworkpolicy.crd.antrea.io/p", PolicyRule: "ingress[2]"},
	}}, {}}
	NameRules(steps, titles{})
	if s := steps[0]; s.RuleName != "no-ops" || s.PolicyRule != "ingress[0]" || s.Missed[0].RuleName != "no-ops" || s.Missed[1].RuleName != "" || steps[1].RuleName != "" {
		t.Errorf("steps %+v", steps)
	}
}
