package policyflows

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// memberClause is what the groups of a layer's rules have for a member: one
// flow for each priority.
type memberClause struct {
	layer  layer
	member model.Member
}

// portClause is a set of ports in a layer at one priority: one flow a family. A
// port of many rules is in many lanes, so the priority is part of it.
type portClause struct {
	layer    layer
	priority uint16
	ports    portMask
}

// podClause is a pod in a layer: a flow for each priority and address, or port
// and family.
type podClause struct {
	layer layer
	name  string
}

func (c memberClause) compare(o memberClause) int {
	return cmp.Or(cmp.Compare(c.layer, o.layer), c.member.Compare(o.member))
}

func (c portClause) compare(o portClause) int {
	return cmp.Or(cmp.Compare(c.layer, o.layer), cmp.Compare(c.priority, o.priority), c.ports.compare(o.ports))
}

func (c podClause) compare(o podClause) int {
	return cmp.Or(cmp.Compare(c.layer, o.layer), strings.Compare(c.name, o.name))
}

func (c memberClause) key() string { return fmt.Sprintf("%d peer %s", c.layer.table(), c.member) }

func (c portClause) key() string {
	return fmt.Sprintf("%d %s at %d", c.layer.table(), c.ports, c.priority)
}

func (c podClause) key() string { return fmt.Sprintf("%d pod %s", c.layer.table(), c.name) }

// part is the part that a rule has in a clause.
type part struct {
	priority uint16
	id       uint32
	k, n     uint8
}

func (p part) compare(o part) int {
	return cmp.Or(-cmp.Compare(p.priority, o.priority), cmp.Compare(p.id, o.id), cmp.Compare(p.k, o.k))
}

// clauses renders one flow for each match and each priority among the parts.
func (l layer) clauses(parts []part, matches ...openflow.Match) []openflow.Flow {
	slices.SortFunc(parts, part.compare)
	parts = slices.Compact(parts)
	var flows []openflow.Flow
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && parts[n].priority == parts[0].priority {
			n++
		}
		actions := make([]openflow.Action, n)
		for i, p := range parts[:n] {
			actions[i] = openflow.Conjunction(p.id, p.k, p.n)
		}
		for _, m := range matches {
			flows = append(flows, openflow.Flow{Table: l.table(), Priority: parts[0].priority, Match: m, Actions: actions})
		}
		parts = parts[n:]
	}
	return flows
}

func ruleKey(id RuleID) string {
	return strconv.Itoa(int(layerOf(id.Policy.Tier, id.Direction).table())) + " " + id.String()
}

func closingKey(name string) string { return "pod " + name }
