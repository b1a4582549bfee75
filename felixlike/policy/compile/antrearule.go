package compile

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// compileRule compiles a rule. It is closed if tier, priority or appliedTo are not valid.
func (c *antreaCompiler) compileRule(d model.Direction, name string, r *antrea.Rule, target antreaTarget) []model.Rule {
	closed := c.closed || target.closed
	path := "spec." + name
	action, known := antreaAction(r.Action)
	if !known {
		c.Add(path+".action", "unsupported action %q: must be Allow, Drop, Reject or Pass; the rule denies everything", r.Action)
		return []model.Rule{denyAll(name)}
	}
	before := len(c.Problems)
	c.refuse(d, r, path)
	of, field := r.From, ".from"
	if d == model.Egress {
		of, field = r.To, ".to"
	}
	peers := c.antreaPeers(of, path+field)
	ports := c.antreaPorts(r.Ports, path+".ports")
	if d == model.Ingress && len(target.nodes) > 0 && len(ports.names) > 0 {
		c.Add(path+".ports", "a node has no named ports")
	}
	c.antreaProtocols(&ports, r.Protocols, path+".protocols")
	if len(c.Problems) > before {
		// For Antrea, an Allow with l7Protocols decides each packet that it matches: none may go
		// on to later rules.
		return c.replaced(before, name, action == model.Allow && len(r.L7Protocols) == 0)
	}
	rule := model.Rule{Name: name, Title: model.RuleTitle(r.Name), Action: action, Log: r.EnableLogging}
	if faults := validation.IsValidLabelValue(r.LogLabel); len(faults) > 0 {
		c.Add(path+".logLabel", "invalid label %q: %s; the lines have none", shown(r.LogLabel), strings.Join(faults, ", "))
	} else if r.EnableLogging {
		rule.LogLabel = r.LogLabel
	}
	switch {
	case closed && action == model.Allow:
		return nil
	case closed && action == model.Pass:
		rule.Action = model.Deny
	case action == model.Pass && c.baseline():
		c.Add(path+".action", "Pass is not allowed in tier %s, which no tier follows; the rule denies what it matches", antreaBaselineTier)
		rule.Action = model.Deny
	}
	return c.directed(d, rule, peers, ports)
}

func antreaAction(a antrea.Action) (model.Action, bool) {
	switch a {
	case antrea.Allow:
		return model.Allow, true
	case antrea.Drop:
		return model.Deny, true
	case antrea.Reject:
		return model.Reject, true
	case antrea.Pass:
		return model.Pass, true
	}
	return model.Deny, false
}

// refuse reports the fields of a rule that are not supported.
func (c *antreaCompiler) refuse(d model.Direction, r *antrea.Rule, path string) {
	if len(r.L7Protocols) > 0 {
		c.Add(path+".l7Protocols", "not supported")
	}
	if len(r.ToServices) > 0 {
		c.Add(path+".toServices", "not supported")
	}
	switch {
	case d == model.Ingress && len(r.To) > 0:
		c.Add(path+".to", "not allowed in an ingress rule")
	case d == model.Egress && len(r.From) > 0:
		c.Add(path+".from", "not allowed in an egress rule")
	}
}
