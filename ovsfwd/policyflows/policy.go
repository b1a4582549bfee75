package policyflows

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/tables"
)

// MaxFlows bounds the flows for the rules of one direction of a policy. Flows of its
// pods and of pods that selectors match do not count. The switch takes some 15,000
// flows a second, and other policies wait meanwhile (docs/reference/limits/openflow.md).
const MaxFlows = 30_000

// side is a policy in one direction.
type side struct {
	id        model.PolicyID
	direction model.Direction
}

func (s side) origin() tables.Origin { return tables.OfPolicy{ID: s.id, Direction: s.direction} }

func (s side) compare(o side) int {
	return cmp.Or(s.id.Compare(o.id), cmp.Compare(s.direction, o.direction))
}

// String returns "ingress of default/web".
func (s side) String() string { return s.direction.String() + " of " + s.id.String() }

// policy is one direction of a policy: its rules, and the pods it applies to. It
// is there while it has either.
type policy struct {
	side
	precedence model.Precedence
	known      bool
	rules      []*rule
	pods       map[*pod]struct{}
	// A policy is quarantined, without flows and with its pods closed, for one of these
	// reasons: the switch has refused it, there is no priority left for one of its rules
	// (crowded), or it needs too many flows (oversized).
	refused, crowded, oversized bool
	// closedSince is when one of the latter was first reported.
	closedSince time.Time
}

func (p *policy) quarantined() bool { return p.refused || p.crowded || p.oversized }

// rule is one rule of a policy with its place among the flows.
type rule struct {
	RuleID
	policy *policy
	layer  layer
	spec   model.Rule
	id     uint32
	// displaced says that another rule had the id of its hash.
	displaced bool
	// priority is that of its clauses; zero until it has one.
	priority uint16
	// installed says that its clauses are in the store.
	installed bool
	// dimensions is the number of its dimensions; the others are their places in
	// it, zero for one that is left out.
	dimensions, ofPods, ofPeers, ofPorts uint8
	ports                                []portMask
	// set is the set of the ports if it is one of portSets, bit the bit by which its clauses match it; zero if they match the ports.
	set *portSet
	bit uint32
}

// use is one use of a group by a rule: for its peers, or for its named ports.
type use struct {
	rule  *rule
	named bool
}

// actionPriority is the priority of the flow that the fulfilled rule leads to.
func (r *rule) actionPriority() uint16 {
	if r.layer.networkPolicies() {
		return priorityRuleAction
	}
	return r.priority
}

// newRule numbers the dimensions: sources, destinations, ports.
func newRule(p *policy, index int, spec model.Rule) *rule {
	r := &rule{
		RuleID: RuleID{p.id, p.direction, index}, policy: p, layer: layerOf(p.id.Tier, p.direction), spec: spec,
	}
	next := func(used bool) uint8 {
		if used {
			r.dimensions++
			return r.dimensions
		}
		return 0
	}
	// A conjunction needs two dimensions.
	peers := !spec.AnyPeer || spec.AnyPort
	if p.direction == model.Egress {
		r.ofPods = next(true)
		r.ofPeers = next(peers)
	} else {
		r.ofPeers = next(peers)
		r.ofPods = next(true)
	}
	r.ofPorts = next(!spec.AnyPort)
	if !spec.AnyPort { // else the rule has no dimension of ports
		for _, ports := range spec.Ports {
			r.ports = append(r.ports, portMasks(ports)...)
		}
	}
	slices.SortFunc(r.ports, portMask.compare)
	r.ports = slices.Compact(r.ports)
	return r
}

// portClauses are what the flows for its ports match.
func (r *rule) portClauses() []portMask {
	if r.bit != 0 {
		return []portMask{{bit: r.bit}}
	}
	return r.ports
}

// matches reports whether any packet could match the rule.
func (r *rule) matches() bool {
	return (r.spec.AnyPeer || len(r.spec.Peers) > 0) && (r.spec.AnyPort || len(r.ports)+len(r.spec.NamedPorts) > 0)
}

func sameRules(have []*rule, want []model.Rule) bool {
	return slices.EqualFunc(have, want, func(a *rule, b model.Rule) bool { return equalRules(a.spec, b) })
}

func equalRules(a, b model.Rule) bool {
	return a.Name == b.Name && a.Action == b.Action && a.AnyPeer == b.AnyPeer && a.AnyPort == b.AnyPort && a.Log == b.Log &&
		slices.Equal(a.Peers, b.Peers) && slices.Equal(a.Ports, b.Ports) && slices.Equal(a.NamedPorts, b.NamedPorts)
}

func (r *rule) partOf(k uint8) part { return part{r.priority, r.id, k, r.dimensions} }

// fault returns why the policy is closed though the switch has not refused it, or "".
func (p *policy) fault() string {
	switch {
	case p.oversized:
		return fmt.Sprintf("spec.%s comes to more than %d flows (blocks without their exceptions as prefixes, ports, rules): use fewer or wider exceptions, or split the policy",
			p.direction, MaxFlows)
	case p.crowded:
		return "the ordered policies of this node have more rules than their table has priorities"
	}
	return ""
}

func (q *policy) podIDs() []model.PodID {
	var ids []model.PodID
	for p := range q.pods {
		ids = append(ids, p.ID)
	}
	slices.SortFunc(ids, model.PodID.Compare)
	return slices.Compact(ids)
}

// pod is a Pod with its policies.
type pod struct {
	Pod
	name     string
	policies [2][]*policy
}

func (p *pod) applied(d model.Direction) *model.Applied {
	if d == model.Ingress {
		return &p.Ingress
	}
	return &p.Egress
}

// closed reports whether the pod's new connections of a direction are dropped:
// its policies are not known, or one of them is quarantined.
func (p *pod) closed(d model.Direction) bool {
	return !p.Open || slices.ContainsFunc(p.policies[d-1], (*policy).quarantined)
}

// matches returns the matches of the pod's packets of a direction in the families: by
// its addresses, or by its port.
func (p *pod) matches(d model.Direction, families ...model.Family) []openflow.Match {
	var all []openflow.Match
	if d == model.Egress {
		for _, a := range p.Addresses {
			if f := model.FamilyOf(a); slices.Contains(families, f) {
				all = append(all, address(ip(f), openflow.IPv4Src, model.AddressMember(a).Prefix))
			}
		}
		return all
	}
	if p.Port == 0 {
		return nil
	}
	for _, f := range families {
		all = append(all, ip(f).Bits(openflow.Reg1, p.Port, ^uint32(0)))
	}
	return all
}
