package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// judgingTables are the tables of the bridge that judge packets.
func judgingTables() []pipeline.Table {
	return slices.DeleteFunc(pipeline.Tables(), func(t pipeline.Table) bool { return t.Judges == 0 })
}

// split returns the match and the actions of a flow as text.
func split(f *flowtext.Flow) (match, actions string) {
	if f.Foreign != "" {
		match, actions, _ = strings.Cut(f.Foreign, " actions=")
		return match, actions
	}
	return f.MatchText(), f.ActionsText()
}

// address returns the address that the flow matches in one of the fields.
func address(f *flowtext.Flow, fields ...openflow.Field) (string, bool) {
	for _, field := range fields {
		if t, found := f.Term(field); found {
			return t.Addr().String(), true
		}
	}
	return "", false
}

func source(f *flowtext.Flow) (string, bool) {
	return address(f, openflow.IPv4Src, openflow.IPv6Src)
}

func destination(f *flowtext.Flow) (string, bool) {
	return address(f, openflow.IPv4Dst, openflow.IPv6Dst)
}

// isOf reports whether the flow is for packets of the family.
func isOf(f *flowtext.Flow, family model.Family) bool {
	other := uint64(unix.ETH_P_IPV6)
	if family == model.IPv6 {
		other = unix.ETH_P_IP
	}
	t, _ := f.Term(openflow.EthType)
	return t.Value.Lo != other
}

func conjunctions(f *flowtext.Flow) []flowtext.Conjunction {
	var all []flowtext.Conjunction
	for _, a := range f.Actions {
		if c, ok := a.(flowtext.Conjunction); ok {
			all = append(all, c)
		}
	}
	return all
}

// ruleNames names the rules of an agent's policies by the ids in its flows.
func ruleNames(s *control.Status) map[uint32]string {
	var all []policyflows.RuleID
	for _, p := range s.Policies {
		id := model.PolicyID{Namespace: p.Namespace, Name: p.Name, API: p.API, Part: p.Part, Within: p.Within}
		for _, t := range []model.Tier{model.TierAdmin, model.TierNetworkPolicy, model.TierBaseline} {
			if t.String() == p.Tier {
				id.Tier = t
			}
		}
		for _, d := range model.Directions() {
			n := p.EgressRules
			if d == model.Ingress {
				n = p.IngressRules
			}
			for i := range n {
				all = append(all, policyflows.RuleID{Policy: id, Direction: d, Index: i})
			}
		}
	}
	names := map[uint32]string{}
	for id, r := range policyflows.IDs(all) {
		names[id] = fmt.Sprintf("%s %s[%d]", r.Policy, r.Direction, r.Index)
	}
	return names
}

// podFlows finds the flows that judge the packets of one pod.
type podFlows struct {
	address string
	// port is zero if the pod has none.
	port   uint64
	family model.Family
	// names are those of rules by id, pods those of addresses.
	names map[uint32]string
	pods  map[string]string
	// pod is the pod's own name.
	pod string
	// parts are the priorities of the clauses of rules that apply to the pod.
	parts map[uint32]uint16
}

// behindParts sorts a rule's decision behind its three dimensions.
const behindParts = 4

// sortedRule is a rule with its sort key: a conjunction with its parts.
type sortedRule struct {
	listedRule
	at   uint16
	name string
	part int
}

// tables returns the flows of the judging tables for the pod.
func (p *podFlows) tables(flows []*flowtext.Flow) []*listedChain {
	var all []*listedChain
	for _, j := range judgingTables() {
		p.findParts(j, flows)
		var rows []sortedRule
		policy := false
		for _, f := range flows {
			if f.Table == j.Number && isOf(f, p.family) && p.concerns(j, f) {
				found := p.rows(j, f)
				rows = append(rows, found...)
				policy = policy || len(found) > 0 && f.Owner() == pipeline.PolicyOwner
			}
		}
		if !policy && j.Number == pipeline.TableAdminIngress {
			continue // packets come there only where there are rules in it
		}
		slices.SortStableFunc(rows, func(a, b sortedRule) int {
			return cmp.Or(-cmp.Compare(a.at, b.at), cmp.Compare(a.name, b.name), cmp.Compare(a.part, b.part), cmp.Compare(a.Match, b.Match))
		})
		c := &listedChain{Name: fmt.Sprintf("%d", j.Number), What: j.Name}
		for _, r := range rows {
			c.Rules = append(c.Rules, r.listedRule)
		}
		all = append(all, c)
	}
	return all
}

// findParts adds the rules of a table that apply to the pod.
func (p *podFlows) findParts(j pipeline.Table, flows []*flowtext.Flow) {
	for _, f := range flows {
		if f.Table == j.Number && isOf(f, p.family) && p.own(j, f) {
			for _, c := range conjunctions(f) {
				p.parts[c.ID] = f.Priority
			}
		}
	}
}

// own reports whether the flow is for the pod by name: its address for egress,
// its port for ingress.
func (p *podFlows) own(j pipeline.Table, f *flowtext.Flow) bool {
	if j.Judges == model.Ingress {
		port, found := f.Term(openflow.Reg1)
		return found && port.Value.Lo == p.port
	}
	a, found := source(f)
	return found && a == p.address
}

// concerns reports whether packets of the pod can match the flow.
func (p *podFlows) concerns(j pipeline.Table, f *flowtext.Flow) bool {
	if j.Judges == model.Egress {
		_, pinned := source(f)
		return !pinned || p.own(j, f)
	}
	if a, found := destination(f); found && a != p.address {
		return false // a named port of another pod
	}
	_, others := f.Term(openflow.Reg1)
	return !others || p.own(j, f)
}

// rows describes a flow: one row for each rule of the pod that it is part of.
func (p *podFlows) rows(j pipeline.Table, f *flowtext.Flow) []sortedRule {
	_, actions := split(f)
	row := sortedRule{
		listedRule: listedRule{Packets: f.Packets, Priority: f.Priority, Match: p.match(j, f), Verdict: actions, Actions: actions},
		at:         f.Priority,
	}
	if f.Priority == 0 {
		row.For = "all else"
	}
	if parts := conjunctions(f); len(parts) > 0 {
		var rows []sortedRule
		for _, c := range parts {
			if _, applies := p.parts[c.ID]; applies {
				row.Verdict, row.name, row.For, row.part = c.String(), p.name(c.ID), p.name(c.ID), int(c.K)
				rows = append(rows, row)
			}
		}
		return rows
	}
	if t, found := f.Term(openflow.ConjID); found {
		id := uint32(t.Value.Lo)
		at, applies := p.parts[id]
		row.at, row.name, row.For, row.part, row.Verdict = at, p.name(id), p.name(id), behindParts, decision(f)
		return only(applies, row)
	}
	if id, what, found := counted(j, f); found {
		_, applies := p.parts[id]
		row.name, row.For = p.name(id), p.name(id)+": "+what
		return only(applies, row)
	}
	row.For = cmp.Or(row.For, p.purpose(j, f))
	return []sortedRule{row}
}

func only(applies bool, row sortedRule) []sortedRule {
	if !applies {
		return nil
	}
	return []sortedRule{row}
}

func (p *podFlows) name(id uint32) string {
	if name := p.names[id]; name != "" {
		return name
	}
	return fmt.Sprintf("rule with id %d", id)
}

// match writes the fields as the tool does, and the owners of addresses and
// port.
func (p *podFlows) match(j pipeline.Table, f *flowtext.Flow) string {
	text, _ := split(f)
	if j.Judges == model.Ingress && p.own(j, f) {
		return text + " (to " + p.pod + ")"
	}
	for _, field := range []openflow.Field{openflow.IPv4Src, openflow.IPv4Dst, openflow.IPv6Src, openflow.IPv6Dst} {
		a, _ := address(f, field)
		if pod := p.pods[a]; pod != "" {
			return text + " (" + pod + ")"
		}
	}
	return text
}

// decision describes the action of the fulfilled rule.
func decision(f *flowtext.Flow) string {
	for i, a := range f.Actions {
		switch a := a.(type) {
		case flowtext.CT:
			if a.Commit {
				return "allow"
			}
		case flowtext.SetField:
			if a.Field == openflow.Reg3 {
				return "deny"
			}
		case flowtext.Resubmit, flowtext.GotoTable:
			if i == 0 {
				return "pass, " + f.ActionsText()
			}
		}
	}
	return f.ActionsText()
}

// counted returns the rule that a flow of the metrics tables counts, and which of its
// packets.
func counted(j pipeline.Table, f *flowtext.Flow) (id uint32, what string, found bool) {
	if j.Number != pipeline.TableEgressMetrics && j.Number != pipeline.TableIngressMetrics {
		return 0, "", false
	}
	for _, c := range []struct {
		field openflow.Field
		what  string
	}{
		{openflow.Reg3, "denied"}, {openflow.Reg5, "first packets"}, {openflow.Reg6, "first packets"}, {openflow.CTLabel, "later packets"},
	} {
		if t, found := f.Term(c.field); found && t.Value.Hi == 0 {
			id := t.Value.Lo
			if c.field == openflow.CTLabel && j.Judges == model.Egress {
				id >>= 32 // ingress has the lower half
			}
			return uint32(id), c.what, true
		}
	}
	return 0, "", false
}

// purpose describes a flow that belongs to no rule.
func (p *podFlows) purpose(j pipeline.Table, f *flowtext.Flow) string {
	match, _ := split(f)
	switch own := p.own(j, f); {
	case own && f.Owner() == pipeline.PolicyOwner && (j.Number == pipeline.TableEgressDefault || j.Number == pipeline.TableIngressDefault):
		return "isolated " + j.Judges.String()
	case own && f.Owner() == pipeline.PolicyOwner:
		return "closed pod"
	case f.Owner() == pipeline.PolicyOwner:
		return "denied, not counted"
	case strings.Contains(match, "ct_label=0/"):
		return "a connection not allowed yet is judged"
	case strings.Contains(match, "ct_state=-new+est"):
		return "established connections"
	case strings.Contains(match, "ct_state=-new+rel"):
		return "ICMP errors of established connections"
	case strings.HasPrefix(match, "sctp"):
		return "established SCTP associations"
	case strings.Contains(match, "_src="):
		return "this node"
	}
	return ""
}

// portOf returns the port that an address is pinned to, zero if there is none.
func portOf(flows []*flowtext.Flow, address string) uint64 {
	for _, f := range flows {
		if a, _ := source(f); f.Table == pipeline.TableSpoofGuard && a == address {
			if t, found := f.Term(openflow.InPort); found {
				return t.Value.Lo
			}
		}
	}
	return 0
}
