package compile

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// tieredCompiler compiles one policy of a tier whose rules have actions. Such a policy fails closed:
// with an invalid field its Allow rules match nothing, and its Deny and Pass rules deny.
type tieredCompiler struct {
	compiler
	// allow is the API's name of model.Allow.
	allow string
	// closed is true if a field that all rules depend on is not valid.
	closed bool
}

// close notes that a field that all rules depend on is not valid.
func (c *tieredCompiler) close(field, format string, args ...any) {
	c.closed = true
	c.Add(field, format+"; every "+c.allow+" matches nothing, and every Pass denies what it matches", args...)
}

// replaced returns the rules in place of one that is not valid. It adds the effect to the problems
// of the rule, which begin at that index.
func (c *tieredCompiler) replaced(from int, name string, allows bool) []model.Rule {
	effect := "; the rule denies everything"
	if allows {
		effect = "; the rule matches nothing"
	}
	for i := range c.Problems[from:] {
		c.Problems[from+i].Reason += effect
	}
	if allows {
		return nil
	}
	return []model.Rule{denyAll(name)}
}

// exceeds reports whether the rules of a direction exceed a limit, and adds the problem. Their
// replacement is closedRules.
func (c *tieredCompiler) exceeds(d model.Direction, rules []model.Rule) bool {
	reason := c.exceeded(rules)
	if reason == "" {
		return false
	}
	effect := "no rule of this direction applies"
	if len(closedRules(rules)) > 0 {
		effect = "this direction denies everything"
	}
	c.Add("spec."+d.String(), "%s; %s", reason, effect)
	return true
}

// directed compiles the peers and ports of a rule of a direction.
func (c *tieredCompiler) directed(d model.Direction, r model.Rule, peers peerSet, ports portSet) []model.Rule {
	if d == model.Ingress {
		return c.rule(nil, r, peers, ports, c.named(ports, c.targets...))
	}
	return c.egressRule(nil, r, peers, ports)
}

// selector compiles a selector, and returns nil if it is not valid. The effect ends its problems.
func (c *tieredCompiler) selector(s *metav1.LabelSelector, path, effect string) *label.Selector {
	compiled, errs := label.Compile(s, path)
	for _, err := range errs {
		c.Add(err.Field, "%s%s", err.ErrorBody(), effect)
	}
	if len(errs) > 0 {
		return nil
	}
	return compiled
}

// countTrue counts the conditions that are true.
func countTrue(conditions ...bool) int {
	n := 0
	for _, is := range conditions {
		if is {
			n++
		}
	}
	return n
}
