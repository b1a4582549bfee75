package trace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// TableName names an OpenFlow table for people, as in "table 90 NetworkPolicies,
// ingress".
func TableName(table uint8) string {
	if t, known := pipeline.TableOf(table); known {
		return fmt.Sprintf("table %d %s", table, t.Label)
	}
	return fmt.Sprintf("table %d", table)
}

// describe adds to a step the policy behind the flow and the members that matched. For
// a flow that isolates, it adds the rules that nearly matched.
func (w *bridge) describe(step *Step, h *hit, f *fields) {
	if h.id != 0 {
		step.Policy, step.PolicyRule = w.namer.Conjunction(h.id)
		for _, c := range h.clauses {
			step.Sets = append(step.Sets, w.clause(h.id, c)...)
		}
		for _, id := range h.others {
			policy, rule := w.namer.Conjunction(id)
			step.Comment = strings.TrimSpace(step.Comment + fmt.Sprintf(" %s %s is fulfilled as well", policy, rule))
		}
		return
	}
	if h.flow.Table == pipeline.TableSpoofGuard && h.flow.Drops() && pipeline.IsTunnelEnd(h.flow.Priority) {
		step.Comment = string(oracle.TunnelEnd)
	}
	w.missed = append(w.missed, w.unfulfilled(h, f)...)
	if h.flow.Owner() == pipeline.PolicyOwner && h.flow.Drops() {
		step.Comment, step.Missed = w.closing(h.flow, f), w.missed
	}
	if h.flow.Table == pipeline.TableL3Forwarding {
		w.missed = nil // the other direction begins here
	}
}

// closing returns the reason for a policy flow that drops.
func (w *bridge) closing(flow *flowtext.Flow, f *fields) string {
	switch flow.Table {
	case pipeline.TableEgressDefault:
		return named("isolated egress of "+f.source().String(), w.namer.Address(f.source()))
	case pipeline.TableIngressDefault:
		return named("isolated ingress of "+f.destination().String(), w.namer.Address(f.destination()))
	case pipeline.TableEgressMetrics, pipeline.TableIngressMetrics:
		if rejects(flow) {
			return "rejected by a rule"
		}
		return "denied by a rule"
	}
	return "the pod is closed"
}

// clause returns the members by which one dimension of a conjunction matched.
func (w *bridge) clause(id uint32, flow *flowtext.Flow) []Membership {
	var all []Membership
	for _, a := range flow.Actions {
		c, ok := a.(flowtext.Conjunction)
		if !ok || c.ID != id {
			continue
		}
		member := flow.MatchText()
		if member == "" {
			member = "any"
		}
		all = append(all, Membership{Set: fmt.Sprintf("conjunction %d, dimension %d of %d", c.ID, c.K, c.N), Member: member, Owner: w.owner(flow)})
	}
	return all
}

// owner names the pod that a flow is about, if it is about one.
func (w *bridge) owner(flow *flowtext.Flow) string {
	for _, t := range flow.Match {
		switch t.Field {
		case openflow.IPv4Src, openflow.IPv4Dst, openflow.IPv6Src, openflow.IPv6Dst:
			if t.Exact() {
				return w.namer.Address(t.Addr())
			}
		case openflow.Reg1:
			return w.namer.Port(w.site.Node, uint32(t.Value.Lo))
		}
	}
	return ""
}

// unfulfilled are the pod's rules with a dimension that did not
// match.
func (w *bridge) unfulfilled(h *hit, f *fields) []Miss {
	var all []Miss
	for _, id := range sortedKeys(h.nearly) {
		n := h.nearly[id]
		if len(n.clauses) == int(n.n) || !w.about(n) {
			continue
		}
		var lacks []string
		for k := uint8(1); k <= n.n; k++ {
			if n.clauses[k] == nil {
				lacks = append(lacks, w.lacks(h.flow.Table, id, k, f))
			}
		}
		policy, rule := w.namer.Conjunction(id)
		all = append(all, Miss{Policy: policy, PolicyRule: rule, Rule: fmt.Sprintf("conjunction %d", id), Because: strings.Join(lacks, ", ")})
	}
	return all
}

// lacks describes a dimension of a conjunction that did not match. It reads from one
// flow of the dimension whether the flows match ports or peers.
func (w *bridge) lacks(table uint8, id uint32, k uint8, f *fields) string {
	flow := w.site.Flows.clause(table, id, k)
	if flow == nil {
		return fmt.Sprintf("dimension %d has no flow, so that nothing matches it", k)
	}
	peer := f.source()
	if table <= pipeline.TableEgressDefault {
		peer = f.destination()
	}
	_, port := flow.Term(openflow.IPProto)
	if _, set := flow.Term(openflow.Reg7); port || set {
		t := tupleOf(f)
		return fmt.Sprintf("%s is not one of its ports", model.PortRange{Protocol: model.Protocol(t.protocol), First: uint16(t.to), Last: uint16(t.to)})
	}
	return named(peer.String(), w.namer.Address(peer)) + " is not one of its peers"
}

// about reports whether one of the dimensions that matched is that of the pod.
func (w *bridge) about(n *near) bool {
	for _, flow := range n.clauses {
		direction := []openflow.Field{openflow.Reg1}
		if flow.Table <= pipeline.TableEgressDefault {
			direction = []openflow.Field{openflow.IPv4Src, openflow.IPv6Src}
		}
		if slices.ContainsFunc(direction, func(f openflow.Field) bool { _, has := flow.Term(f); return has }) {
			return true
		}
	}
	return false
}
