package policyflows

import (
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// renderer renders the flows of the objects.
type renderer struct {
	*objects
	// reported says that denied packets are reported.
	reported bool
	// logged says that rules with Log report.
	logged bool
	// answers says that packets of rules that reject are answered.
	answers bool
	// rejecting are the rules that reject. A rule of a quarantined policy may get its flows back at
	// any time, and they need the meter.
	rejecting map[RuleID]struct{}
}

// deny returns the actions for a denied packet. Flows without actions drop it.
func (re *renderer) deny() []openflow.Action {
	if !re.reported {
		return nil
	}
	return ReportActions()
}

// denyOf returns the actions for a packet that the rule denies.
func (re *renderer) denyOf(r *rule) []openflow.Action {
	if r.spec.Action != model.Reject || !re.answers {
		return re.deny()
	}
	return append(RejectActions(), re.deny()...)
}

// eachUse yields what rules of the layer ask of the member's groups.
func (re *renderer) eachUse(c memberClause) func(yield func(use) bool) {
	return func(yield func(use) bool) {
		named := c.member.Protocol != model.AnyProtocol
		for _, g := range re.members[c.member] {
			if g.asked[c.layer][kind(named)] == 0 {
				continue
			}
			for u := range g.users {
				if u.named == named && u.rule.layer == c.layer && !yield(u) {
					return
				}
			}
		}
	}
}

func (re *renderer) memberUsed(c memberClause) bool {
	for range re.eachUse(c) {
		return slices.Contains(re.families, c.member.Family())
	}
	return false
}

func (re *renderer) memberFlows(c memberClause) []openflow.Flow {
	var parts []part
	for u := range re.eachUse(c) {
		k := u.rule.ofPeers
		if u.named {
			k = u.rule.ofPorts
		}
		parts = append(parts, u.rule.partOf(k))
	}
	return c.layer.clauses(parts, c.layer.peer(c.member))
}

func (re *renderer) portFlows(c portClause) []openflow.Flow {
	parts := make([]part, 0, len(re.ports[c]))
	for r := range re.ports[c] {
		parts = append(parts, r.partOf(r.ofPorts))
	}
	matches := make([]openflow.Match, 0, len(re.families))
	for _, f := range re.families {
		if of := c.ports.protocol.ICMPFamily(); of == 0 || of == f {
			matches = append(matches, c.ports.match(f))
		}
	}
	return c.layer.clauses(parts, matches...)
}

// eachRule yields the installed rules of a layer that apply to a pod.
func (re *renderer) eachRule(c podClause) func(yield func(*rule) bool) {
	return func(yield func(*rule) bool) {
		p := re.pods[c.name]
		if p == nil {
			return
		}
		for _, q := range p.policies[c.layer.direction()-1] {
			for _, r := range q.rules {
				if r.layer == c.layer && r.installed && !yield(r) {
					return
				}
			}
		}
	}
}

func (re *renderer) podUsed(c podClause) bool {
	for range re.eachRule(c) {
		return len(re.podMatches(c)) > 0
	}
	return false
}

func (re *renderer) podFlows(c podClause) []openflow.Flow {
	var parts []part
	var before []part
	for r := range re.eachRule(c) {
		if r.Policy.BeforeTiers() {
			before = append(before, r.partOf(r.ofPods))
		} else {
			parts = append(parts, r.partOf(r.ofPods))
		}
	}
	matches := re.podMatches(c)
	flows := c.layer.clauses(parts, matches...)
	for i, m := range matches {
		matches[i] = m.Bits(c.layer.asked(), 0, pipeline.Asked)
	}
	return append(flows, c.layer.clauses(before, matches...)...)
}

// podMatches are the matches for a pod's packets.
func (re *renderer) podMatches(c podClause) []openflow.Match {
	return re.pods[c.name].matches(c.layer.direction(), re.families...)
}

// ruleFlows renders the flow of the fulfilled rule, and the flows that count it.
func (re *renderer) ruleFlows(id RuleID) []openflow.Flow {
	r := re.rules[id]
	if r == nil {
		return nil
	}
	var flows []openflow.Flow
	var report []openflow.Action
	if r.spec.Log && re.logged {
		report = LogActions(r.logMeter())
	}
	for _, f := range re.families {
		flows = append(flows, r.layer.decide(r, f, report))
	}
	return append(flows, counterFlows(r, re.denyOf(r))...)
}

// closingFlows renders the flows that drop the packets of a closed or isolated pod. The
// pod is closed, too, in a family without rendered rules: the flows that would deny
// there are missing.
func (re *renderer) closingFlows(name string) []openflow.Flow {
	p := re.pods[name]
	if p == nil {
		return nil
	}
	var flows []openflow.Flow
	for _, d := range model.Directions() {
		for _, f := range model.Families() {
			switch {
			case p.closed(d) || !slices.Contains(re.families, f):
				flows = append(flows, closedFlows(p, d, f, re.deny())...)
			case p.applied(d).Isolated():
				flows = append(flows, isolatedFlows(p, d, f, re.deny())...)
			}
		}
	}
	return flows
}
