package nftables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// loadOrigins wants every kind of match on where a packet comes from, and of
// action on its source.
func loadOrigins(table *Table) {
	for _, f := range model.Families() {
		table.CreateSet(ipsets.Set{Name: "hairpin-" + f.String(), Kind: model.Loops, Family: f})
	}
	table.AddMembers("hairpin-4", membersOf("10.0.0.1", "10.0.0.2"))
	table.AddMembers("hairpin-6", membersOf("fd00::1"))
	source := func(p string) tables.Match { return tables.MatchConnSource{Prefix: netip.MustParsePrefix(p)} }
	table.UpdateChain(tables.Chain{Name: "rewritten", Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookPostrouting, Priority: 101}, Rules: []tables.Rule{
		rule(tables.Drop{}, "", tables.MatchForwarded{}, tables.MatchConnOriginal{}, tables.MatchLocal{Side: tables.Source}),
		rule(tables.Drop{}, "", tables.MatchLocal{Side: tables.Destination, Negated: true}, tables.MatchConnDNAT{}),
		rule(tables.Return{}, "", tables.MatchConnTranslated{}),
		rule(tables.Return{}, "", tables.MatchHopLimit{Hops: 255, Negated: true}),
		rule(tables.Return{}, "", tables.MatchHopLimit{Hops: 1}),
		rule(tables.Drop{}, "", source("10.0.0.0/16")),
		rule(tables.Drop{}, "", source("10.0.0.1/32")),
		rule(tables.Drop{}, "", source("10.0.0.0/15")),
		rule(tables.Drop{}, "", source("fd00::/65")),
		rule(tables.Drop{}, "", source("fd00::1/128")),
	}})
	table.UpdateChain(tables.Chain{Name: "sources", Hook: sources, Rules: []tables.Rule{
		rule(tables.SourceNAT{To: addr("192.0.2.1")}, "", tables.MatchLoop{Family: model.IPv4, Set: "hairpin-4"}),
		rule(tables.SourceNAT{To: addr("2001:db8::1")}, "", tables.MatchLoop{Family: model.IPv6, Set: "hairpin-6"}),
		rule(tables.SourceNAT{To: addr("2001:db8::2")}, ""),
		rule(tables.KeepSource{Family: model.IPv4}, "", prefix(tables.Source, "10.10.0.0/24", false)),
		rule(tables.KeepSource{Family: model.IPv6}, ""),
	}})
}

var sources = &tables.Hook{Type: tables.HookNAT, Point: tables.HookPostrouting, Priority: 99}

// TestOriginsAreReadBack: the kernel returns a rule on origins in the predicted form, so a restart writes
// nothing.
func TestOriginsAreReadBack(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadOrigins(table)
	apply(t, table)
	wantSilent(t, table)
	restarted := ns.open(t)
	loadOrigins(restarted)
	if r := apply(t, restarted); r.Messages != 0 {
		t.Errorf("after a restart: %+v", r)
	}
	ns.nft(t, "add element inet felixlike hairpin-4 { 10.0.0.1 . 10.0.0.2 }")
	restarted.Invalidate()
	if r := apply(t, restarted); r.ElementsDeleted == 0 && r.ElementsAdded == 0 {
		t.Errorf("a pair of two addresses was not noticed: %+v", r)
	}
	if listing := ns.list(t); strings.Contains(listing, "10.0.0.1 . 10.0.0.2") {
		t.Errorf("a pair of two addresses is left:\n%s", listing)
	}
	wantSilent(t, restarted)
}

// TestBadOriginsAreNamed: the error names an impossible rule.
func TestBadOriginsAreNamed(t *testing.T) {
	for _, c := range []struct {
		name, want string
		hook       *tables.Hook
		rule       tables.Rule
	}{
		{"source rewritten in filter", "only in a base chain of the nat type", nil, rule(tables.KeepSource{Family: model.IPv4}, "")},
		{"no address", "not usable as a source", sources, rule(tables.SourceNAT{}, "")},
		{"no family", "unknown family", sources, rule(tables.KeepSource{}, "")},
		{"two families", "after a match of family 4", sources, rule(tables.SourceNAT{To: addr("fd00::1")}, "", prefix(tables.Source, "10.0.0.0/8", false))},
		{"host bits", "not usable", nil, rule(tables.Drop{}, "", tables.MatchConnSource{Prefix: netip.MustParsePrefix("10.0.0.1/8")})},
		{"no side", "unknown side", nil, rule(tables.Drop{}, "", tables.MatchLocal{})},
		{"no set", "set none is not wanted", nil, rule(tables.Drop{}, "", tables.MatchLoop{Family: model.IPv4, Set: "none"})},
		{"set of another kind", "which the match cannot look up", nil, rule(tables.Drop{}, "", srcSet(model.IPv4, "hairpin-4"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := newNamespace(t).open(t)
			loadOrigins(table)
			apply(t, table)
			table.UpdateChain(tables.Chain{Name: "bad", Hook: c.hook, Rules: []tables.Rule{c.rule}})
			r, err := table.Apply(t.Context())
			said := ""
			if err != nil {
				said = err.Error()
			}
			for _, refused := range r.Refused {
				said += refused.Reason
			}
			if !strings.Contains(said, c.want) {
				t.Errorf("%q does not say %q", said, c.want)
			}
		})
	}
}
