package rules

import (
	"slices"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// established is a packet of a connection that the host knows as allowed and answered.
type established struct {
	protocol model.Protocol
	in, out  string
	mark     uint32
}

func (p established) matches(t *testing.T, m tables.Match) bool {
	t.Helper()
	switch m := m.(type) {
	case tables.MatchInterface:
		name := p.in
		if m.Side == tables.Destination {
			name = p.out
		}
		return (m.Name == name) != m.Negated
	case tables.MatchProtocol:
		return (m.Protocol == p.protocol) != m.Negated
	case tables.MatchSYN:
		return m.Negated
	case tables.MatchConnState:
		return m.States&tables.StateEstablished != 0
	case tables.MatchConnMark:
		return (MarkAllowed|MarkSettled)&m.Mask == m.Value
	case tables.MatchMark:
		return (p.mark&m.Mask == m.Value) != m.Negated
	}
	t.Fatalf("an established packet is compared with %q", m)
	return false
}

// passes counts the rules that the packet passes in a base chain.
func (p established) passes(t *testing.T, c tables.Chain) (count int) {
	t.Helper()
	for _, r := range c.Rules {
		count++
		if slices.ContainsFunc(r.Matches, func(m tables.Match) bool { return !p.matches(t, m) }) {
			continue
		}
		switch r.Action.(type) {
		case tables.Accept, tables.Return:
			return count
		}
		t.Fatalf("chain %s: an established packet gets to %s", c.Name, r)
	}
	return count
}

// TestEstablishedPackets bounds the rules for packets of allowed connections, at each hook.
// Chains of the type nat see only the first packet of a connection. No mark of another
// program costs such a packet more.
func TestEstablishedPackets(t *testing.T) {
	for kind, length := range map[string]int{"nftables": NFTablesNameLength, "iptables": IPTablesNameLength} {
		r := NewRenderer("flx-gw0", length)
		chains := r.Node().Static(testNode())
		if kind == "iptables" {
			chains = append(chains, r.Node().Passed())
		}
		for name, p := range map[string]established{
			"TCP, pod to pod":         {model.TCP, "flx-gw0", "flx-gw0", 0},
			"TCP, from outside":       {model.TCP, "eth0", "flx-gw0", 0},
			"UDP, pod to pod":         {model.UDP, "flx-gw0", "flx-gw0", 0},
			"TCP, foreign mark":       {model.TCP, "flx-gw0", "flx-gw0", MarkRejected},
			"UDP to outside, foreign": {model.UDP, "flx-gw0", "eth0", MarkRejected | MarkJudged},
		} {
			other := 0
			if p.protocol != model.TCP {
				other = 1
			}
			want := map[string]int{ChainPrerouting: 1, ChainForward: 1 + other, ChainAllowed: 1}
			if kind == "iptables" {
				want[ChainAllowed], want[ChainPassed] = 1+other, 2+other
			}
			got := map[string]int{}
			for _, c := range chains {
				if c.Hook != nil && c.Hook.Type != tables.HookNAT {
					got[c.Name] = p.passes(t, c)
				}
			}
			for chain, most := range want {
				if got[chain] != most {
					t.Errorf("%s, %s: %d rules in %s, want %d", kind, name, got[chain], chain, most)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: base chains %v, want %v", kind, got, want)
			}
		}
	}
}
