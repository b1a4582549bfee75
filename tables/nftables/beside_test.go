package nftables

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/tables"
)

// Two tables of one agent stand beside each other: each is repaired for itself,
// none takes the other's commits for its own business, and one can go alone.
func TestTwoTables(t *testing.T) {
	ns := newNamespace(t)
	names := []string{DefaultTable, "felixlike-openflow"}
	var agents []*agent
	for _, name := range names {
		table := New(Options{NetNS: ns.fd, Table: name, Guard: []tables.Chain{{
			Name: "guard", Hook: forwardHook, Rules: []tables.Rule{rule(tables.Drop{}, "guard of "+name)},
		}}})
		t.Cleanup(func() { _ = table.Close() })
		a := running(t, table)
		loadOrigins(table)
		a.do(func() { apply(t, table) })
		agents = append(agents, a)
	}
	listing := func(name string) string { return ns.run(t, "nft", "-s", "list", "table", "inet", name) }
	whole := map[string]string{}
	for _, name := range names {
		whole[name] = listing(name)
	}
	for i, name := range names {
		ns.nft(t, "flush chain inet "+name+" sources")
		agents[i].eventually(t, "the repair of "+name, func() bool {
			return slices.Contains(agents[i].repairs(), "chain sources: 5 rules missing, by nft")
		})
	}
	ns.nft(t, "flush ruleset")
	for i, name := range names {
		agents[i].eventually(t, name+" to be made anew", func() bool {
			return slices.ContainsFunc(agents[i].repairs(), func(s string) bool { return strings.HasPrefix(s, "table "+name) })
		})
		if got := listing(name); got != whole[name] {
			t.Errorf("table %s after a flush:\n%s", name, got)
		}
	}
	// The commits of one agent do not concern the other.
	for i, a := range agents {
		a.do(func() { agents[i].table.AddMembers("hairpin-4", membersOf(fmt.Sprintf("10.0.9.%d", i))) })
		a.do(func() { apply(t, agents[i].table) })
		other := agents[1-i]
		other.do(func() {
			if r := apply(t, other.table); r.Messages != 0 || r.FullRead || len(r.Repaired) > 0 {
				t.Errorf("table %s after a change of %s: %+v", names[1-i], names[i], r)
			}
		})
	}
	agents[0].stop()
	if err := agents[0].table.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := ns.run(t, "nft", "list", "tables"); strings.TrimSpace(got) != "table inet "+names[1] {
		t.Errorf("tables: %s", got)
	}
	agents[1].do(func() { wantSilent(t, agents[1].table) })
}
