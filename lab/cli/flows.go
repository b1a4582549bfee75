package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// policyTables are the tables of the pipeline that judge packets, by the
// direction that they are for, in the order of a packet.
var policyTables = map[model.Direction][]string{
	model.Egress:  {"45", "50", "60", "61"},
	model.Ingress: {"85", "90", "100", "101"},
}

// listedFlow is a flow as ovs-ofctl prints it.
type listedFlow struct {
	table   string
	packets uint64
	// match has the priority as well.
	match   []string
	actions string
	// conjunctions are the clauses that the flow is in.
	conjunctions []conjunction
}

// conjunction is one clause of a rule: its dimension k of n.
type conjunction struct{ id, k, n string }

// name is how a clause is listed.
func (c conjunction) name() string { return fmt.Sprintf("conjunction(%s,%s/%s)", c.id, c.k, c.n) }

// parseFlows reads what `ovs-ofctl dump-flows` prints.
func parseFlows(text string) []listedFlow {
	line := regexp.MustCompile(`table=(\d+), n_packets=(\d+), .*?(priority=\S+) actions=(.*)$`)
	clause := regexp.MustCompile(`conjunction\((\d+),(\d+)/(\d+)\)`)
	var flows []listedFlow
	for l := range strings.Lines(text) {
		m := line.FindStringSubmatch(strings.TrimSpace(l))
		if m == nil {
			continue
		}
		f := listedFlow{table: m[1], match: strings.Split(m[3], ","), actions: m[4]}
		f.packets, _ = strconv.ParseUint(m[2], 10, 64) // digits, by the expression
		for _, c := range clause.FindAllStringSubmatch(m[4], -1) {
			f.conjunctions = append(f.conjunctions, conjunction{c[1], c[2], c[3]})
		}
		flows = append(flows, f)
	}
	return flows
}

func (f listedFlow) has(field string) bool { return slices.Contains(f.match, field) }

// followFlows collects the flows that judge the packets of a pod: those of its
// address on the way out, those of its port on the way in, and the clauses of
// the rules that they belong to.
func (r *podRules) followFlows(flows []listedFlow, of map[string]string) {
	port := portOf(flows, r.Address)
	if port == "" {
		return
	}
	number, _ := strconv.ParseUint(port, 10, 32) // ovs-ofctl printed it
	for _, d := range []struct {
		direction model.Direction
		field     string
	}{
		{model.Egress, addressField(r.Address) + "=" + r.Address},
		{model.Ingress, fmt.Sprintf("reg1=0x%x", number)},
	} {
		r.Dispatch = append(r.Dispatch, listedEntry{In: "tables of " + d.direction.String(), Match: r.Address, Verdict: d.field})
		for _, table := range policyTables[d.direction] {
			if c := r.tableOf(flows, table, d.field, of); len(c.Rules) > 0 {
				r.Chains = append(r.Chains, c)
			}
		}
	}
}

// portOf returns the OpenFlow port that an address is pinned to.
func portOf(flows []listedFlow, address string) string {
	for _, f := range flows {
		if f.table != "10" || !f.has(addressField(address)+"="+address) {
			continue
		}
		for _, m := range f.match {
			if port, ok := strings.CutPrefix(m, "in_port="); ok {
				return port
			}
		}
	}
	return ""
}

func addressField(address string) string {
	if strings.Contains(address, ":") {
		return "ipv6_src"
	}
	return "nw_src"
}

// tableOf lists what a table does with packets of the field.
func (r *podRules) tableOf(flows []listedFlow, table, field string, of map[string]string) *listedChain {
	c := &listedChain{Name: "table " + table}
	foreign := "ipv6"
	if strings.Contains(r.Address, ":") {
		foreign = "ip"
	}
	for _, f := range flows {
		if f.table != table || !f.has(field) || f.has(foreign) {
			continue
		}
		if len(f.conjunctions) == 0 {
			c.Rules = append(c.Rules, listedRule{Packets: f.packets, Match: strings.Join(f.match, ","), Verdict: verdictOf(f)})
		}
		for _, own := range f.conjunctions {
			c.Rules = append(c.Rules, r.rule(flows, table, field, own, of[own.id]))
		}
	}
	return c
}

// rule lists a rule of several clauses, of which the pod's is one.
func (r *podRules) rule(flows []listedFlow, table, field string, own conjunction, of string) listedRule {
	rule := listedRule{Match: field, Verdict: "conjunction " + own.id, For: of}
	clauses := map[string][]string{}
	for _, f := range flows {
		if f.table != table {
			continue
		}
		if f.has("conj_id=" + own.id) {
			rule.Packets += f.packets
			rule.Verdict = verdictOf(f)
		}
		for _, c := range f.conjunctions {
			if c.id == own.id && c.k != own.k {
				clauses[c.name()] = append(clauses[c.name()], strings.Join(f.match[1:], ","))
			}
		}
	}
	for _, name := range sortedKeys(clauses) {
		rule.Match += " and " + name
		if !slices.ContainsFunc(r.Sets, func(s listedSet) bool { return s.Name == name }) {
			slices.Sort(clauses[name])
			r.Sets = append(r.Sets, listedSet{Name: name, Members: clauses[name]})
		}
	}
	return rule
}

// verdictOf is what a flow does, in the words of the tool, without what it
// writes down for the counters.
func verdictOf(f listedFlow) string {
	var words []string
	for _, a := range splitActions(f.actions) {
		if !strings.HasPrefix(a, "set_field:") {
			words = append(words, regexp.MustCompile(`,exec\(.*\)\)$`).ReplaceAllString(a, ")"))
		}
	}
	return strings.Join(words, ",")
}

// splitActions takes a list of actions apart at the commas that are in no
// brackets.
func splitActions(text string) []string {
	var all []string
	depth, begin := 0, 0
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			all = append(all, text[begin:i])
			begin = i + 1
		}
	}
	return append(all, text[begin:])
}

// rulesOf names the rules of an agent's policies by the numbers of their
// conjunctions. One that had to give way to another one's number has no name.
func rulesOf(s *control.Status) map[string]string {
	of := map[string]string{}
	for _, p := range s.Policies {
		id := model.PolicyID{Tier: tierOf(p.Tier), Namespace: p.Namespace, Name: p.Name}
		for d, n := range map[model.Direction]int{model.Ingress: p.IngressRules, model.Egress: p.EgressRules} {
			for i := range n {
				number := policyflows.HashID(policyflows.RuleID{Policy: id, Direction: d, Index: i})
				of[strconv.FormatUint(uint64(number), 10)] = fmt.Sprintf("%s %s[%d]", id, d, i)
			}
		}
	}
	return of
}

func tierOf(name string) model.Tier {
	for _, t := range []model.Tier{model.TierAdmin, model.TierBaseline} {
		if t.String() == name {
			return t
		}
	}
	return model.TierNetworkPolicy
}
