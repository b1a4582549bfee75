package managers

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// held is the state of a driver with maps, for tests that follow packets.
type held struct {
	chains map[string]tables.Chain
	maps   map[string]map[netip.Addr]tables.Action
	sets   map[string]map[model.Member]bool
}

func (h *held) UpdateChain(c tables.Chain) { h.chains[c.Name] = c }

func (h *held) RemoveChain(name string) { delete(h.chains, name) }

func (h *held) CreateSet(s ipsets.Set) { h.sets[s.Name] = map[model.Member]bool{} }

func (h *held) RemoveSet(name string) { delete(h.sets, name) }

func (h *held) CreateMap(n string, _ model.Family) { h.maps[n] = map[netip.Addr]tables.Action{} }

func (h *held) SetVerdict(n string, a netip.Addr, v tables.Action) { h.maps[n][a] = v }

func (h *held) RemoveVerdict(n string, a netip.Addr) { delete(h.maps[n], a) }

func (h *held) AddMembers(name string, members []model.Member) {
	for _, m := range members {
		h.sets[name][m] = true
	}
}

func (h *held) RemoveMembers(name string, members []model.Member) {
	for _, m := range members {
		delete(h.sets[name], m)
	}
}

// text is all that is held.
func (h *held) text() string {
	var out string
	for _, name := range slices.Sorted(maps.Keys(h.chains)) {
		c := h.chains[name]
		out += c.Text()
	}
	return out + fmt.Sprint(h.maps, h.sets)
}

// probe is a first packet between pods of the node.
type probe struct {
	src, dst netip.Addr
	port     uint16
	mark     uint32
}

// follow walks a chain and returns how the packet ends, "" if it comes back.
func (h *held) follow(t *testing.T, p *probe, name string) string {
	t.Helper()
	chain, ok := h.chains[name]
	if !ok {
		t.Fatalf("there is no chain %s", name)
	}
rules:
	for _, r := range chain.Rules {
		for _, m := range r.Matches {
			if !h.matches(t, p, m) {
				continue rules
			}
		}
		action := r.Action
		if d, ok := action.(tables.Dispatch); ok {
			if action, ok = h.maps[d.Map][p.address(d.Side)]; !ok {
				continue
			}
		}
		switch a := action.(type) {
		case tables.Accept:
			if p.mark&rules.MarkRejected != 0 {
				return "drop" // in the table filter
			}
			return "accept"
		case tables.Drop, tables.Reject:
			return "drop"
		case tables.Return:
			return ""
		case tables.Goto:
			return h.follow(t, p, a.Chain)
		case tables.Jump:
			if end := h.follow(t, p, a.Chain); end != "" {
				return end
			}
		case tables.SetMark:
			p.mark = p.mark&^a.Mask | a.Value
		case tables.SetMarkAndReturn:
			p.mark = p.mark&^a.Mask | a.Value
			return ""
		default:
			t.Fatalf("action %s", a)
		}
	}
	return ""
}

func (p *probe) address(s tables.Side) netip.Addr {
	if s == tables.Source {
		return p.src
	}
	return p.dst
}

func (h *held) matches(t *testing.T, p *probe, m tables.Match) bool {
	t.Helper()
	switch m := m.(type) {
	case tables.MatchInterface:
		return !m.Negated
	case tables.MatchProtocol:
		return (m.Protocol == model.TCP) != m.Negated
	case tables.MatchSYN:
		return !m.Negated
	case tables.MatchConnState:
		return m.States&tables.StateNew != 0
	case tables.MatchDestinationPorts:
		return m.First <= p.port && p.port <= m.Last
	case tables.MatchMark:
		return (p.mark&m.Mask == m.Value) != m.Negated
	case tables.MatchPrefix:
		return m.Prefix.Contains(p.address(m.Side)) != m.Negated
	case tables.MatchSet:
		members, ok := h.sets[m.Set]
		if !ok {
			t.Fatalf("there is no set %s", m.Set)
		}
		return members[model.AddressMember(p.address(m.Side))]
	}
	t.Fatalf("match %s", m)
	return false
}

// clone returns a copy that changes do not reach.
func (h *held) clone() *held {
	c := &held{chains: maps.Clone(h.chains), maps: map[string]map[netip.Addr]tables.Action{}, sets: map[string]map[model.Member]bool{}}
	for name, entries := range h.maps {
		c.maps[name] = maps.Clone(entries)
	}
	for name, members := range h.sets {
		c.sets[name] = maps.Clone(members)
	}
	return c
}
