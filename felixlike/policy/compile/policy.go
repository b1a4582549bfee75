package compile

import (
	"iter"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// Policy is a compiled policy.
type Policy struct {
	Model model.Policy
	// Targets select the pods that the policy applies to: those of any of them. A policy may
	// have none; then it applies to no pod.
	Targets []Selection
	// Nodes select the nodes that the policy applies to. A policy has Targets or Nodes, never both.
	Nodes []*label.Selector
	// Staged policies are not enforced.
	Staged bool
	// Ingress and Egress are the directions in which it applies. A NetworkPolicy isolates
	// in these directions.
	Ingress, Egress bool
	// Groups are the definitions of the groups in the rules, distinct and sorted by
	// identifier.
	Groups []Group
}

// Selectors yields pointers to the selectors of the policy, so that a caller can replace them.
func (p *Policy) Selectors() iter.Seq[**label.Selector] {
	return func(yield func(**label.Selector) bool) {
		var all []**label.Selector
		for i := range p.Targets {
			all = append(all, &p.Targets[i].Namespaces, &p.Targets[i].Pods)
		}
		for i := range p.Nodes {
			all = append(all, &p.Nodes[i])
		}
		for i := range p.Groups {
			g := &p.Groups[i]
			all = append(all, &g.From.Namespaces, &g.From.Pods, &g.Nodes)
		}
		for _, s := range all {
			if *s != nil && !yield(s) {
				return
			}
		}
	}
}

// Closed returns the policy with rules that allow nothing and refer to no group: a
// direction denies everything if one of its rules denies or passes.
func (p *Policy) Closed() *Policy {
	closed := *p
	closed.Model.Ingress, closed.Model.Egress = closedRules(p.Model.Ingress), closedRules(p.Model.Egress)
	closed.Groups = nil
	return &closed
}

// closedRules returns the replacement of rules that cannot be in force: a rule that denies
// everything if one of them denies or passes, else none.
func closedRules(rules []model.Rule) []model.Rule {
	for _, r := range rules {
		if r.Action != model.Allow {
			return []model.Rule{denyAll(r.Name)}
		}
	}
	return nil
}

func denyAll(name string) model.Rule {
	return model.Rule{Name: name, Action: model.Deny, AnyPeer: true, AnyPort: true}
}
