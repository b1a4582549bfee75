package policyflows

import (
	"slices"
	"strconv"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func ruleKey(id RuleID) string {
	return strconv.Itoa(int(layerOf(id.Policy.Tier, id.Direction).table())) + " " + id.String()
}

// ruleFlows renders what the fulfilled rule leads to, and what counts it.
func (s *Store) ruleFlows(id RuleID) []openflow.Flow {
	r := s.rules[id]
	if r == nil {
		return nil
	}
	var flows []openflow.Flow
	for _, f := range s.families {
		flows = append(flows, r.layer.decide(r, f))
	}
	return append(flows, counters(r, s.deny())...)
}

func closingKey(name string) string { return "pod " + name }

// closingFlows renders what drops the packets of a pod beside the rules: that it
// is closed, or isolated. In a family that no rules are rendered for it is
// closed, too: what would deny there is missing.
func (s *Store) closingFlows(name string) []openflow.Flow {
	p := s.pods[name]
	if p == nil {
		return nil
	}
	var flows []openflow.Flow
	for _, d := range model.Directions() {
		for _, f := range model.Families() {
			switch {
			case p.closed(d) || !slices.Contains(s.families, f):
				flows = append(flows, closed(p, d, f, s.deny())...)
			case p.applied(d).Isolated():
				flows = append(flows, isolated(p, d, f, s.deny())...)
			}
		}
	}
	return flows
}
