package policyflows

import (
	"cmp"
	"fmt"
	"slices"
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
	pod   string
}

func (c memberClause) compare(o memberClause) int {
	return cmp.Or(cmp.Compare(c.layer, o.layer), c.member.Compare(o.member))
}

func (c portClause) compare(o portClause) int {
	return cmp.Or(cmp.Compare(c.layer, o.layer), cmp.Compare(c.priority, o.priority), c.ports.compare(o.ports))
}

func (c podClause) compare(o podClause) int {
	return cmp.Or(cmp.Compare(c.layer, o.layer), strings.Compare(c.pod, o.pod))
}

func (c memberClause) key() string { return fmt.Sprintf("%d peer %s", c.layer.table(), c.member) }

func (c portClause) key() string {
	return fmt.Sprintf("%d %s at %d", c.layer.table(), c.ports, c.priority)
}

func (c podClause) key() string { return fmt.Sprintf("%d pod %s", c.layer.table(), c.pod) }

// part is the part that a rule has in a clause.
type part struct {
	priority uint16
	id       uint32
	k, n     uint8
}

func (p part) compare(o part) int {
	return cmp.Or(-cmp.Compare(p.priority, o.priority), cmp.Compare(p.id, o.id), cmp.Compare(p.k, o.k))
}

func (r *rule) part(k uint8) part { return part{r.priority, r.id, k, r.dimensions} }

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

// eachUse yields what rules of the layer ask of the member's groups.
func (s *Store) eachUse(c memberClause) func(yield func(use) bool) {
	return func(yield func(use) bool) {
		named := c.member.Protocol != model.AnyProtocol
		for _, g := range s.members[c.member] {
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

func (s *Store) memberUsed(c memberClause) bool {
	for range s.eachUse(c) {
		return slices.Contains(s.families, c.member.Family())
	}
	return false
}

func (s *Store) memberFlows(c memberClause) []openflow.Flow {
	var parts []part
	for u := range s.eachUse(c) {
		k := u.rule.ofPeers
		if u.named {
			k = u.rule.ofPorts
		}
		parts = append(parts, u.rule.part(k))
	}
	return c.layer.clauses(parts, c.layer.peer(c.member))
}

func (s *Store) portFlows(c portClause) []openflow.Flow {
	parts := make([]part, 0, len(s.ports[c]))
	for r := range s.ports[c] {
		parts = append(parts, r.part(r.ofPorts))
	}
	matches := make([]openflow.Match, 0, len(s.families))
	for _, f := range s.families {
		m := ip(f).Protocol(c.ports.protocol)
		if c.ports.mask != 0 {
			m = m.Port(portField(c.ports.protocol), c.ports.value, c.ports.mask)
		}
		matches = append(matches, m)
	}
	return c.layer.clauses(parts, matches...)
}

// eachRule yields the installed rules of a layer that apply to a pod.
func (s *Store) eachRule(c podClause) func(yield func(*rule) bool) {
	return func(yield func(*rule) bool) {
		p := s.pods[c.pod]
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

func (s *Store) podUsed(c podClause) bool {
	for range s.eachRule(c) {
		return len(s.podMatches(c)) > 0
	}
	return false
}

func (s *Store) podFlows(c podClause) []openflow.Flow {
	var parts []part
	for r := range s.eachRule(c) {
		parts = append(parts, r.part(r.ofPods))
	}
	return c.layer.clauses(parts, s.podMatches(c)...)
}

// podMatches are the matches for a pod's packets.
func (s *Store) podMatches(c podClause) []openflow.Match {
	return s.pods[c.pod].matches(c.layer.direction(), s.families...)
}

// matches returns what matches the pod's packets of a direction in the families:
// by its addresses, or by its port.
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
