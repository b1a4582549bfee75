package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// judgingTables are the tables of the bridge that judge packets.
func judgingTables() []pipeline.Table {
	return slices.DeleteFunc(pipeline.Tables(), func(t pipeline.Table) bool { return t.Judges == 0 })
}

// flow is a flow with its match in words.
type flow struct {
	*flowtext.Flow
	match []string
	// actions are all of them as text.
	actions string
}

func flowsOf(s *dump.State) []flow {
	all := make([]flow, 0, len(s.Flows))
	for _, f := range s.Flows {
		one := flow{Flow: f, actions: f.ActionsText()}
		text := f.MatchText()
		if f.Foreign != "" {
			text, one.actions, _ = strings.Cut(f.Foreign, " actions=")
		}
		if text != "" {
			one.match = strings.Split(text, ",")
		}
		all = append(all, one)
	}
	return all
}

// field returns a field that the flow matches, without its mask.
func (f flow) field(name string) (string, bool) {
	for _, word := range f.match {
		if value, found := strings.CutPrefix(word, name+"="); found {
			value, _, _ = strings.Cut(value, "/")
			return value, true
		}
	}
	return "", false
}

func (f flow) number(name string) (uint32, bool) {
	value, found := f.field(name)
	n, err := strconv.ParseUint(value, 0, 64)
	if name == "ct_label" && f.Table == pipeline.TableEgressMetrics {
		n >>= 32
	}
	return uint32(n), found && err == nil
}

// of reports whether the flow is for packets of the family.
func (f flow) of(family model.Family) bool {
	other := "6"
	if family == model.IPv6 {
		other = "4"
	}
	for _, word := range f.match {
		switch word {
		case "ip", "tcp", "udp", "sctp", "icmp":
			word += "4"
		case "ipv6", "tcp6", "udp6", "sctp6", "icmp6":
		default:
			continue
		}
		if strings.HasSuffix(word, other) {
			return false
		}
	}
	return true
}

// conjunction is a part that a flow has in a conjunction.
type conjunction struct {
	id   uint32
	part int
	text string
}

func (f flow) conjunctions() []conjunction {
	var all []conjunction
	for _, a := range f.Actions {
		if c, ok := a.(flowtext.Conjunction); ok {
			all = append(all, conjunction{c.ID, int(c.K), c.String()})
		}
	}
	return all
}

// ruleNames names the rules of an agent's policies by the ids in its flows.
func ruleNames(s *control.Status) map[uint32]string {
	var all []policyflows.RuleID
	for _, p := range s.Policies {
		id := model.PolicyID{Namespace: p.Namespace, Name: p.Name}
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
	address, port string
	family        model.Family
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
func (p *podFlows) tables(flows []flow) []*listedChain {
	var all []*listedChain
	for _, j := range judgingTables() {
		p.findParts(j, flows)
		var rows []sortedRule
		policy := false
		for _, f := range flows {
			if f.Table == j.Number && f.of(p.family) && p.concerns(j, f) {
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
func (p *podFlows) findParts(j pipeline.Table, flows []flow) {
	for _, f := range flows {
		if f.Table == j.Number && f.of(p.family) && p.own(j, f) {
			for _, c := range f.conjunctions() {
				p.parts[c.id] = f.Priority
			}
		}
	}
}

// own reports whether the flow is for the pod by name: its address for egress,
// its port for ingress.
func (p *podFlows) own(j pipeline.Table, f flow) bool {
	if j.Judges == model.Ingress {
		port, found := f.field("reg1")
		return found && port == p.port
	}
	for _, name := range []string{"nw_src", "ipv6_src"} {
		if a, found := f.field(name); found {
			return a == p.address
		}
	}
	return false
}

// concerns reports whether packets of the pod can match the flow.
func (p *podFlows) concerns(j pipeline.Table, f flow) bool {
	if j.Judges == model.Ingress {
		for _, name := range []string{"nw_dst", "ipv6_dst"} {
			if a, found := f.field(name); found && a != p.address {
				return false // a named port of another pod
			}
		}
		_, others := f.field("reg1")
		return !others || p.own(j, f)
	}
	_, v4 := f.field("nw_src")
	_, v6 := f.field("ipv6_src")
	return !v4 && !v6 || p.own(j, f)
}

// rows describes a flow: one row for each rule of the pod that it is part of.
func (p *podFlows) rows(j pipeline.Table, f flow) []sortedRule {
	row := sortedRule{
		listedRule: listedRule{Packets: f.Packets, Priority: f.Priority, Match: p.match(j, f), Verdict: f.actions, Actions: f.actions},
		at:         f.Priority,
	}
	if f.Priority == 0 {
		row.For = "all else"
	}
	if parts := f.conjunctions(); len(parts) > 0 {
		var rows []sortedRule
		for _, c := range parts {
			if _, applies := p.parts[c.id]; applies {
				row.Verdict, row.name, row.For, row.part = c.text, p.name(c.id), p.name(c.id), c.part
				rows = append(rows, row)
			}
		}
		return rows
	}
	if id, found := f.number("conj_id"); found {
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
func (p *podFlows) match(j pipeline.Table, f flow) string {
	text := strings.Join(f.match, ",")
	if j.Judges == model.Ingress && p.own(j, f) {
		return text + " (to " + p.pod + ")"
	}
	for _, name := range []string{"nw_src", "nw_dst", "ipv6_src", "ipv6_dst"} {
		a, _ := f.field(name)
		if pod := p.pods[a]; pod != "" {
			return text + " (" + pod + ")"
		}
	}
	return text
}

// decision describes the action of the fulfilled rule.
func decision(f flow) string {
	switch {
	case strings.Contains(f.actions, "ct(commit"):
		return "allow"
	case strings.Contains(f.actions, "->reg3"):
		return "deny"
	case strings.HasPrefix(f.actions, "resubmit(") || strings.HasPrefix(f.actions, "goto_table:"):
		return "pass, " + f.actions
	}
	return f.actions
}

// counted returns the rule that a flow of the metrics tables counts, and which of its
// packets.
func counted(j pipeline.Table, f flow) (id uint32, what string, found bool) {
	if j.Number != pipeline.TableEgressMetrics && j.Number != pipeline.TableIngressMetrics {
		return 0, "", false
	}
	for _, c := range []struct{ field, what string }{
		{"reg3", "denied"}, {"reg5", "first packets"}, {"reg6", "first packets"}, {"ct_label", "later packets"},
	} {
		if id, found = f.number(c.field); found {
			return id, c.what, true
		}
	}
	return 0, "", false
}

// purpose describes a flow that belongs to no rule.
func (p *podFlows) purpose(j pipeline.Table, f flow) string {
	match := strings.Join(f.match, ",")
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

// portOf returns the port that an address is pinned to, as registers show it, or
// "".
func portOf(flows []flow, address string) string {
	for _, f := range flows {
		v4, _ := f.field("nw_src")
		v6, _ := f.field("ipv6_src")
		if f.Table != pipeline.TableSpoofGuard || v4 != address && v6 != address {
			continue
		}
		if n, found := f.number("in_port"); found {
			return fmt.Sprintf("%#x", n)
		}
	}
	return ""
}
