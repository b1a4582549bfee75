package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// anyRule draws rules of every kind that the driver takes.
func anyRule(targets ...string) *rapid.Generator[tables.Rule] {
	return rapid.Custom(func(t *rapid.T) tables.Rule {
		family := rapid.SampledFrom(model.Families()).Draw(t, "family")
		r := tables.Rule{Comment: anyComment().Draw(t, "comment")}
		kinds := map[string]bool{}
		for _, kind := range rapid.SliceOfN(rapid.IntRange(0, 11), 0, 5).Draw(t, "kinds") {
			m, once := anyMatch(t, kind, family)
			if kinds[once] {
				continue
			}
			kinds[once] = once != ""
			r.Matches = append(r.Matches, m...)
		}
		actions := []tables.Action{tables.Accept{}, tables.Drop{}, tables.Return{}, tables.SetMark{Value: 0x10, Mask: 0xf0}, tables.SetMark{Mask: ^uint32(0)}, tables.SetConnMark{Value: 0x10, Mask: 0xf0}, tables.SetConnMark{Mask: ^uint32(0)}}
		for _, name := range targets {
			actions = append(actions, tables.Jump{Chain: name}, tables.Goto{Chain: name})
		}
		r.Action = rapid.SampledFrom(actions).Draw(t, "action")
		return r
	})
}

// anyMatch draws matches of a kind. It names the part that a rule can have only once.
func anyMatch(t *rapid.T, kind int, family model.Family) (matches []tables.Match, once string) {
	side := rapid.SampledFrom([]tables.Side{tables.Source, tables.Destination}).Draw(t, "side")
	negated := rapid.Bool().Draw(t, "negated")
	mask := rapid.SampledFrom([]uint32{1, 0xf0, 0x10000000, ^uint32(0)}).Draw(t, "mask")
	switch kind {
	case 0:
		p := proto(rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP, model.SCTP}).Draw(t, "protocol"))
		edges := []uint16{0, 1, 80, 443, 65534, 65535}
		first, last := rapid.SampledFrom(edges).Draw(t, "first"), rapid.SampledFrom(edges).Draw(t, "last")
		return []tables.Match{p, ports(min(first, last), max(first, last))}, "protocol"
	case 1:
		p := proto(rapid.SampledFrom([]model.Protocol{model.ICMP, model.TCP, model.UDP, model.ICMPv6, model.SCTP}).Draw(t, "protocol"))
		p.Negated = negated
		if of := p.Protocol.ICMPFamily(); of != 0 && of != family {
			p.Negated = true
		}
		return []tables.Match{p}, "protocol"
	case 2:
		return []tables.Match{tables.MatchSet{Family: family, Side: side, Set: ipsets.Name(rapid.SampledFrom([]model.GroupID{"aweb", "nblock"}).Draw(t, "set"), family)}}, ""
	case 3:
		return []tables.Match{tables.MatchPortSet{Family: family, Set: ipsets.Name(model.GroupID("phttp"), family)}}, ""
	case 4:
		return []tables.Match{tables.MatchPrefix{Side: side, Prefix: anyPrefix(t, family), Negated: negated}}, "prefix" + side.String()
	case 5:
		name := rapid.SampledFrom([]string{"flx-gw0", "fx-*", "eth0.100", "bond_1", "veth1234567890a", "a@b"}).Draw(t, "interface")
		return []tables.Match{device(side, name, negated)}, "interface" + side.String()
	case 7:
		return []tables.Match{tables.MatchConnMark{Value: mask & 0x10000011, Mask: mask}}, ""
	case 8:
		m := rapid.SampledFrom([]tables.Match{tables.MatchConnOriginal{}, tables.MatchConnTranslated{}})
		return []tables.Match{m.Draw(t, "connection")}, ""
	case 9:
		return []tables.Match{proto(model.TCP), tables.MatchSYN{Negated: negated}}, "protocol"
	case 10:
		icmp, _ := model.EchoRequest(family)
		m := tables.MatchICMP{Type: rapid.SampledFrom([]uint8{0, 3, 8, 128, 254}).Draw(t, "type"), AnyCode: rapid.Bool().Draw(t, "any code")}
		if !m.AnyCode {
			m.Code = rapid.SampledFrom([]uint8{0, 1, 255}).Draw(t, "code")
		}
		return []tables.Match{proto(icmp), m}, "protocol"
	case 6:
		return []tables.Match{tables.MatchConnState{States: tables.ConnState(rapid.IntRange(1, 15).Draw(t, "states"))}}, ""
	}
	return []tables.Match{tables.MatchMark{Value: mask & 0x10000011, Mask: mask, Negated: negated}}, ""
}

func anyPrefix(t *rapid.T, family model.Family) netip.Prefix {
	spelled := []string{"0.0.0.0", "10.1.2.3", "192.168.255.255", "255.255.255.255", "127.0.0.1"}
	if family == model.IPv6 {
		// The tools and Go do not agree on how to write all of these.
		spelled = []string{"::", "::1", "fd00::1", "2001:db8:0:0:1::1", "::10.1.2.3", "fe80::", "1:0:2:3:4:5:6:7", "64:ff9b::1.2.3.4", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}
	}
	a := netip.MustParseAddr(rapid.SampledFrom(spelled).Draw(t, "address"))
	bits := rapid.SampledFrom([]int{0, 1, 8, 9, 24, 31, 32, 64, 96, 127, 128}).Draw(t, "bits")
	return netip.PrefixFrom(a, min(bits, a.BitLen())).Masked()
}

// anyComment draws usual comments of policies, and hostile ones.
func anyComment() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{
			"", "x/base ingress[0]", "plain", "flx:aaaa", "it's", `"quoted"`, `back\slash`, "new\nline -j ACCEPT", "tab\there",
			"ümlaut", "trailing ", " leading", "  ", "-j ACCEPT", "#", `\`, `"`, strings.Repeat("long ", 60), "\x00", "%s",
			`" -j ACCEPT`, "--comment \"flx:bbbb\"",
		}),
		rapid.StringN(0, 40, 300),
	)
}

// The tools take any desired rules and print them as we expect: reading them back
// finds nothing to do.
func TestAnyRuleReadsBack(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		seeded.Check(t, func(r *rapid.T) {
			table := h.open(t)
			table.UpdateChain(tables.Chain{Name: "target", Rules: rapid.SliceOfN(anyRule(), 0, 5).Draw(r, "target")})
			table.UpdateChain(tables.Chain{
				Name: "forward", Hook: &tablestest.Forward,
				Rules: append(rapid.SliceOfN(anyRule("target"), 0, 15).Draw(r, "rules"), rule(tables.Jump{Chain: "target"}, "")),
			})
			result, err := table.Apply(t.Context())
			if err != nil || len(result.Refused) != 0 {
				r.Fatalf("%v, %+v", err, result)
			}
			table.Invalidate()
			result, err = table.Apply(t.Context())
			if err != nil || result.Messages != 0 || len(table.observed.learned) != 0 {
				r.Fatalf("%v, %+v, learned %v\n%s", err, result, table.observed.learned, h.state(t))
			}
		})
	})
}

// After any sequence of chains in any tables, the kernel has the desired rules in the
// desired order.
func TestRandomChains(t *testing.T) {
	ruleOf := rapid.Custom(func(t *rapid.T) tables.Rule {
		// Few different rules, so that equal ones repeat.
		r := rule(tables.Return{}, fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "rule")))
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0, 1:
			r.Action = tables.Jump{Chain: "target"}
		case 2:
			r.Matches = []tables.Match{prefix(tables.Source, "10.0.0.0/8", false)}
		case 3:
			r.Matches = []tables.Match{prefix(tables.Source, "fd00::/8", false)}
		}
		return r
	})
	bases := map[string][]tables.Hook{
		"first":  {tablestest.Forward, {Type: tables.HookFilter, Point: tables.HookForward, Priority: -150}},
		"second": {tablestest.Forward, tablestest.Prerouting},
		"third":  {tablestest.Postrouting},
	}
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		h.others(t)
		theirs := h.state(t)
		table := h.open(t)
		seeded.Check(t, func(r *rapid.T) {
			names := []string{"a", "b", "target"}
			for _, name := range names {
				rules := ruleOf
				if name == "target" {
					rules = rapid.Just(rule(tables.Return{}, "end"))
				}
				table.UpdateChain(tables.Chain{Name: name, Rules: rapid.SliceOfN(rules, 0, 12).Draw(r, name)})
			}
			for _, name := range sorted(bases) {
				if rapid.IntRange(0, 3).Draw(r, "removed") == 0 {
					table.RemoveChain(name)
					continue
				}
				hook := rapid.SampledFrom(bases[name]).Draw(r, "hook")
				var rules []tables.Rule
				for _, to := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID).Draw(r, "leads") {
					rules = append(rules, rule(tables.Jump{Chain: to}, ""))
				}
				table.UpdateChain(tables.Chain{Name: name, Hook: &hook, Rules: rules})
			}
			// Sometimes as after a restart, or with a rule of ours displaced.
			switch rapid.IntRange(0, 5).Draw(r, "event") {
			case 0:
				table.Invalidate()
			case 1:
				h.restore(t, model.IPv4, "*filter\n-D FORWARD -j DOCKER-USER\n-I FORWARD 1 -j DOCKER-USER\nCOMMIT\n")
				table.Invalidate()
			}
			result, err := table.Apply(t.Context())
			if err != nil || len(result.Refused) != 0 {
				r.Fatalf("%v, %+v", err, result)
			}
			checkChains(t, r, h, table, result.Rules)
			if again, err := table.Apply(t.Context()); err != nil || again.Messages != 0 {
				r.Fatalf("second apply: %+v, %v", again, err)
			}
		})
		h.restore(t, model.IPv4, "*filter\n-D FORWARD -j DOCKER-USER\n-A FORWARD -j DOCKER-USER\nCOMMIT\n")
		if err := table.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(theirs, h.state(t)); diff != "" {
			t.Error(diff)
		}
	})
}

// checkChains compares the kernel's state with the desired state, which it computes
// anew from the desired chains.
func checkChains(t *testing.T, r *rapid.T, h host, table *Table, rules int) {
	got, want, counted := map[string][]string{}, map[string][]string{}, 0
	for _, f := range model.Families() {
		s := parseSaved(h.save(t, f))
		for _, p := range placesOf(f) {
			for name, c := range s.tables[p.table()].chains {
				key := p.String() + " " + name
				got[key] = []string{}
				for _, rule := range c.rules {
					got[key] = append(got[key], rule.hash)
				}
				counted += len(c.rules)
			}
			for chain, e := range s.tables[p.table()].entries {
				if e.first != len(e.texts) {
					r.Fatalf("%s: our rules in %s do not come first", p, chain)
				}
				for _, text := range e.texts {
					want[p.String()+" "+strings.TrimPrefix(targetOf(text), Prefix)] = nil
				}
				counted += len(e.texts)
			}
			// From each base chain on.
			for _, name := range sorted(table.chains) {
				c := table.chains[name].desired
				if c == nil || c.Hook == nil {
					continue
				}
				if e, _ := entryOf(*c.Hook); e.table == p.table() && slices.ContainsFunc(c.Rules, func(x tables.Rule) bool { return inFamily(x, f) }) {
					addWanted(table, p, name, want)
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.Fatalf("chains (-want +got):\n%s", diff)
	}
	if counted != rules {
		r.Fatalf("%d rules are said to be ours, there are %d", rules, counted)
	}
}

func addWanted(table *Table, p place, name string, want map[string][]string) {
	key := p.String() + " " + name
	if want[key] != nil {
		return
	}
	want[key] = []string{}
	for _, x := range table.chains[name].desired.Rules {
		if !inFamily(x, p.family()) {
			continue
		}
		want[key] = append(want[key], x.Hash())
		if target := tables.Target(x.Action); target != "" {
			addWanted(table, p, target, want)
		}
	}
}

// Splitting is the inverse of quoting, for any text.
func TestQuoteAndWords(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ -~]*`).Draw(t, "text")
		got := Words("-m comment --comment " + quote(text) + " -j X")
		if diff := cmp.Diff([]string{"-m", "comment", "--comment", text, "-j", "X"}, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
