package prove

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

var mutations = flag.Int("mutations", 200, "changes of single rules, elements and flows in TestMutations")

// altered returns a match with another port, prefix length, bit of a mask, state or interface; false if it has none of these.
func altered(m tables.Match) (tables.Match, bool) {
	switch m := m.(type) {
	case tables.MatchDestinationPorts:
		m.Last = max(m.Last-1, m.First) + 1
		return m, m.Last != 0
	case tables.MatchPrefix:
		m.Prefix = netip.PrefixFrom(m.Prefix.Addr(), max(m.Prefix.Bits()-1, 0)).Masked()
		return m, m.Prefix.Bits() > 0
	case tables.MatchProtocol:
		m.Negated = !m.Negated
		return m, true
	case tables.MatchInterface:
		m.Negated = !m.Negated
		return m, true
	case tables.MatchMark:
		m.Mask &= m.Mask - 1
		m.Value &= m.Mask
		return m, m.Mask != 0
	case tables.MatchConnState:
		m.States &= m.States - 1
		return m, m.States != 0
	}
	return m, false
}

// alteredElement returns an element with another port or a longer prefix; false if it has neither.
func alteredElement(e dump.Element) (dump.Element, bool) {
	switch {
	case e.Parts != nil || e.Last.IsValid():
		return e, false
	case e.Port != 0:
		e.Port ^= 1
		return e, e.Port != 0
	case e.Prefix.IsValid() && !e.Prefix.IsSingleIP():
		e.Prefix = netip.PrefixFrom(e.Prefix.Addr(), e.Prefix.Bits()+1)
		return e, true
	}
	return e, false
}

// mutated returns a copy of a state with one change, and what that is.
func mutated(r *rand.Rand, st *dump.State) (*dump.State, string) {
	out := &dump.State{}
	for _, set := range st.IPSets {
		one := *set
		one.Elements = slices.Clone(set.Elements)
		out.IPSets = append(out.IPSets, &one)
	}
	sets := slices.Clone(out.IPSets)
	var chains []*dump.Chain
	for _, t := range st.Tables {
		table := *t
		table.Chains, table.Sets = nil, nil
		for _, c := range t.Chains {
			one := *c
			one.Rules = slices.Clone(c.Rules)
			table.Chains = append(table.Chains, &one)
			if len(one.Rules) > 0 {
				chains = append(chains, &one)
			}
		}
		for _, set := range t.Sets {
			one := *set
			one.Elements = slices.Clone(set.Elements)
			table.Sets = append(table.Sets, &one)
			sets = append(sets, &one)
		}
		out.Tables = append(out.Tables, &table)
	}
	sets = slices.DeleteFunc(sets, func(s *dump.Set) bool { return len(s.Elements) == 0 })
	c := chains[r.IntN(len(chains))]
	i := r.IntN(len(c.Rules))
	at := fmt.Sprintf("chain %s rule %d (%s)", c.Name, i+1, c.Rules[i].Rule)
	switch r.IntN(7) {
	case 0:
		c.Rules = slices.Delete(c.Rules, i, i+1)
		return out, "deleted: " + at
	case 1:
		j := r.IntN(len(c.Rules))
		c.Rules[i], c.Rules[j] = c.Rules[j], c.Rules[i]
		return out, fmt.Sprintf("swapped with %d: %s", j+1, at)
	case 2:
		if len(c.Rules[i].Matches) > 0 {
			j := r.IntN(len(c.Rules[i].Matches))
			c.Rules[i].Matches = slices.Delete(slices.Clone(c.Rules[i].Matches), j, j+1)
			return out, fmt.Sprintf("without match %d: %s", j+1, at)
		}
	case 3:
		c.Rules[i].Action = []tables.Action{tables.Accept{}, tables.Drop{}, tables.Return{}}[r.IntN(3)]
		return out, fmt.Sprintf("with action %s: %s", c.Rules[i].Action, at)
	case 4:
		if len(c.Rules[i].Matches) > 0 {
			j := r.IntN(len(c.Rules[i].Matches))
			if m, ok := altered(c.Rules[i].Matches[j]); ok {
				c.Rules[i].Matches = slices.Clone(c.Rules[i].Matches)
				c.Rules[i].Matches[j] = m
				return out, fmt.Sprintf("with %s: %s", m, at)
			}
		}
	}
	if len(sets) == 0 {
		return out, "nothing"
	}
	s := sets[r.IntN(len(sets))]
	i = r.IntN(len(s.Elements))
	if e, ok := alteredElement(s.Elements[i]); ok && r.IntN(2) == 0 {
		what := fmt.Sprintf("set %s has %s for %s", s.Name, e, s.Elements[i])
		s.Elements[i] = e
		return out, what
	}
	what := fmt.Sprintf("set %s without %s", s.Name, s.Elements[i])
	s.Elements = slices.Delete(s.Elements, i, i+1)
	return out, what
}

// withFlow returns a copy of a state with one change of a flow, and what that is.
func withFlow(r *rand.Rand, st *dump.State) (*dump.State, string) {
	out := &dump.State{Tables: st.Tables, Flows: slices.Clone(st.Flows)}
	i := r.IntN(len(out.Flows))
	f := *out.Flows[i]
	what := f.String()
	switch r.IntN(5) {
	case 0:
		out.Flows = slices.Delete(out.Flows, i, i+1)
		return out, "deleted: " + what
	case 1:
		f.Actions = nil
	case 2:
		f.Priority = uint16(r.IntN(300))
	case 3:
		if len(f.Match) > 1 {
			f.Match = slices.Delete(slices.Clone(f.Match), len(f.Match)-1, len(f.Match))
		}
	case 4:
		if len(f.Match) > 1 {
			f.Match = slices.Clone(f.Match)
			last := &f.Match[len(f.Match)-1]
			last.Value.Lo ^= 1 & last.Mask.Lo
		}
	}
	out.Flows[i] = &f
	return out, fmt.Sprintf("%s becomes %s", what, &f)
}

// names reports whether packets between two addresses are in a region.
func (d Difference) names(from, to netip.Addr) bool {
	has := func(all []netipx.IPRange, a netip.Addr) bool {
		return slices.ContainsFunc(all, func(r netipx.IPRange) bool { return r.Contains(a) })
	}
	return slices.ContainsFunc(d.Regions, func(r Region) bool { return has(r.Sources, from) && has(r.Destinations, to) })
}

// traced returns the packet of a difference for the walk of single packets, if it is the first one of a connection between two local pods and passes on one
// side only.
func (d Difference) traced(m *control.Model) (trace.Packet, bool) {
	p := d.Packet
	passes := func(verdict string) bool {
		return !strings.HasPrefix(verdict, "dropped") && !strings.HasPrefix(verdict, "rejected")
	}
	return trace.Packet{Source: p.Source, Destination: p.Destination, Protocol: p.Protocol, Port: p.Port, Conn: trace.New},
		(d.Way == "through the host" || d.Way == "from "+p.From) && d.Connection == "new" && (!p.Protocol.IsICMP() || p.Port != 0) && p.Protocol != model.GRE && p.In == model.GatewayPort && p.Out == model.GatewayPort && attached(m, p.Source) && attached(m, p.Destination) && p.Source != p.Destination &&
			slices.Equal(p.Assumed, syn(p.Protocol)) && passes(d.A) != passes(d.B)
}

// TestMutations changes one thing of a state. Each packet that the proof says to differ does by the walk of single packets, if that
// knows its way, and where it says that none differs, random packets do not.
func TestMutations(t *testing.T) {
	names, err := filepath.Glob(cases + "/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	equal, different, refused, replayed, reported := 0, 0, 0, 0, 0
	for range *mutations {
		name := names[r.IntN(len(names))]
		m := modelOf(t, events(t, name), "n1")
		backend := []string{config.NFTables, "maps", config.IPTablesNFT, config.OpenFlow}[r.IntN(4)]
		f := model.Families()[r.IntN(2)]
		before := stateOf(t, *m, backend)
		change := mutated
		if backend == config.OpenFlow {
			change = withFlow
		}
		after, what := change(r, before)
		title := fmt.Sprintf("%s, %s, IPv%s: %s", filepath.Base(name), backend, f, what)
		all, err := compared(f, m, before, after)
		if err != nil {
			refused++
			continue
		}
		if len(all) > 0 && backend != config.OpenFlow && sameRules(before, after) {
			t.Errorf("%s: %v, although the rules are said to be the same", title, all[0].Packet)
		}
		if len(all) == 0 {
			equal++
		} else {
			different++
		}
		a, b := cluster.SiteOf(m, before), cluster.SiteOf(m, after)
		if backend != config.OpenFlow {
			a.Flows, b.Flows = nil, nil
		}
		for _, d := range all {
			p, ok := d.traced(m)
			if !ok {
				continue
			}
			x, err1 := trace.Follow(p, []*trace.Site{a}, nil)
			y, err2 := trace.Follow(p, []*trace.Site{b}, nil)
			if reported++; err1 != nil || err2 != nil || x.Fate.Through() == y.Fate.Through() {
				t.Errorf("%s: %v (%s, %s) is reported, and by trace: %v %v, %v %v", title, p, d.A, d.B, x, err1, y, err2)
			}
		}
		for _, p := range packetsOf(m, f, r, 40) {
			x, err1 := trace.Follow(p.traced, []*trace.Site{a}, nil)
			y, err2 := trace.Follow(p.traced, []*trace.Site{b}, nil)
			if err1 != nil || err2 != nil {
				continue
			}
			if differ := x.Fate.Through() != y.Fate.Through(); differ && len(all) == 0 {
				t.Errorf("%s: %v differs by trace (%s, %s), and is proved equal", title, p.traced, x.Fate, y.Fate)
			} else if differ {
				replayed++
				if !slices.ContainsFunc(all, func(d Difference) bool { return d.MoreRegions || d.names(p.traced.Source, p.traced.Destination) }) {
					t.Errorf("%s: %v differs by trace, and is in no region", title, p.traced)
				}
			}
		}
	}
	t.Logf("%d equal, %d different, %d refused; %d packets differ by trace, %d reported ones were traced", equal, different, refused, replayed, reported)
	if equal == 0 || replayed < 20 || reported < 10 || refused*20 > *mutations {
		t.Error("the changes do not matter")
	}
}
