package nftables

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

func TestSecondApplySendsNothing(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	r := apply(t, table)
	// The table, 8 sets and maps with an element message each, 5 chains and
	// their rules.
	if r.Messages != 1+8+8+5+exampleRules || r.RulesAdded != exampleRules || r.ElementsAdded != 2+1+5+4+2+1+3+1 || !r.FullRead {
		t.Errorf("first load: %+v", r)
	}
	wantSilent(t, table)
	loadExample(table)
	if r := apply(t, table); r.Messages != 0 || r.FullRead {
		t.Errorf("the same again: %+v", r)
	}
	table.Invalidate()
	if r := apply(t, table); r.Messages != 0 || !r.FullRead {
		t.Errorf("after Invalidate: %+v", r)
	}
}

func TestRestartSendsNothing(t *testing.T) {
	ns := newNamespace(t)
	first := ns.open(t)
	loadExample(first)
	apply(t, first)
	before := ns.list(t, "-a")

	second := ns.open(t)
	loadExample(second)
	if r := apply(t, second); r.Messages != 0 || !r.FullRead {
		t.Errorf("restart: %+v", r)
	}
	if diff := cmp.Diff(before, ns.list(t, "-a")); diff != "" {
		t.Errorf("restart changed the table:\n%s", diff)
	}
}

func TestRestartRemovesWhatIsNotWanted(t *testing.T) {
	ns := newNamespace(t)
	first := ns.open(t)
	loadExample(first)
	apply(t, first)
	ns.nft(t, `add rule inet felixlike forward udp dport { 53, 54 } accept
		add map inet felixlike stray { type ipv4_addr : verdict; elements = { 1.1.1.1 : goto pods-in-x/base-1 }; }
		add set inet felixlike odd { type ether_addr; elements = { 02:00:00:00:00:01 }; }
		add rule inet felixlike forward ip saddr vmap @stray`)

	second := ns.open(t)
	second.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook})
	if r := apply(t, second); r.RulesDeleted != exampleRules+2 {
		t.Errorf("%+v", r)
	}
	want := "table inet felixlike {\n\tchain forward {\n\t\ttype filter hook forward priority filter; policy accept;\n\t}\n}\n"
	if diff := cmp.Diff(want, ns.list(t)); diff != "" {
		t.Error(diff)
	}
	wantSilent(t, second)
}

func TestEditKeepsHandlesAndCounters(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	before := handles(ns.list(t, "-a"))

	edited := *table.chains["pin-x/base-1"].desired
	edited.Rules = append([]tables.Rule{rule(tables.Drop{}, "new first")}, edited.Rules...)
	edited.Rules[3].Comment = "x/base renamed"
	edited.Rules = append(edited.Rules, rule(tables.Return{}, "new last"), rule(tables.Return{}, "new last"))
	table.UpdateChain(edited)
	if r := apply(t, table); r.Messages != 5 || r.RulesAdded != 4 || r.RulesDeleted != 1 || r.FullRead {
		t.Errorf("edit: %+v", r)
	}
	after := handles(ns.list(t, "-a"))
	kept := 0
	for comment, handle := range before {
		switch got, ok := after[comment]; {
		case !ok:
		case got == handle:
			kept++
		default:
			t.Errorf("rule %q moved from handle %s to %s", comment, handle, got)
		}
	}
	if kept != len(before)-1 {
		t.Errorf("%d of %d rules are still there, want all but one", kept, len(before))
	}
	wantChain(t, table, edited)

	// The handles that were echoed serve the next edit.
	edited.Rules = edited.Rules[1 : len(edited.Rules)-1]
	table.UpdateChain(edited)
	if r := apply(t, table); r.Messages != 2 || r.FullRead {
		t.Errorf("second edit: %+v", r)
	}
	wantChain(t, table, edited)
}

var ruleLine = regexp.MustCompile(`comment "(flx:.*)" # handle (\d+)`)

// handles returns the handle of each rule by its comment.
func handles(listing string) map[string]string {
	out := map[string]string{}
	for _, m := range ruleLine.FindAllStringSubmatch(listing, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// wantChain checks that the kernel has the chain's rules in order.
func wantChain(t *testing.T, table *Table, want tables.Chain) {
	t.Helper()
	s, err := table.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var wantHashes, got []string
	for _, r := range want.Rules {
		wantHashes = append(wantHashes, r.Hash())
	}
	if c := s.Chain(want.Name); c != nil {
		for _, r := range c.Rules {
			got = append(got, r.Hash)
		}
	}
	if diff := cmp.Diff(wantHashes, got); diff != "" {
		t.Errorf("rules of chain %s (-want +got):\n%s", want.Name, diff)
	}
}

func TestReferencesMoveInOneTransaction(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)

	// The chain and the sets it alone names go; others take their place.
	table.RemoveChain("pin-x/base-1")
	table.RemoveSet("aweb-4")
	table.CreateSet(ipsets.Set{Name: "aother-4", Kind: model.Addresses, Family: model.IPv4})
	table.UpdateChain(tables.Chain{Name: "another", Rules: []tables.Rule{
		rule(tables.Accept{}, "", srcSet(model.IPv4, "aother-4")),
	}})
	table.UpdateChain(tables.Chain{Name: "pods-in-x/base-1", Rules: []tables.Rule{rule(tables.Jump{Chain: "another"}, "x/base")}})
	table.SetVerdict("to-pods-4", addr("10.0.0.1"), tables.Goto{Chain: "another"})
	table.SetVerdict("to-pods-4", addr("10.0.0.4"), tables.Drop{})
	table.RemoveVerdict("to-pods-4", addr("10.0.0.3"))
	r := apply(t, table)
	if r.ElementsAdded != 2 || r.ElementsDeleted != 2 || r.RulesAdded != 2 || r.RulesDeleted != 17 {
		t.Errorf("%+v", r)
	}
	listing := ns.list(t)
	for _, gone := range []string{"pin-x/base-1", "aweb-4", "10.0.0.3"} {
		if strings.Contains(listing, gone) {
			t.Errorf("%s is still there:\n%s", gone, listing)
		}
	}
	wantSilent(t, table)
	table.Invalidate()
	wantSilent(t, table)
}

func TestHookChangeReplacesTheBaseChain(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	moved := *table.chains["forward"].desired
	moved.Hook = &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: -10}
	table.UpdateChain(moved)
	if r := apply(t, table); r.Messages != 2+3 || r.RulesAdded != 3 || r.RulesDeleted != 3 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(ns.list(t), "hook forward priority filter - 10;") {
		t.Error(ns.list(t))
	}
	wantChain(t, table, moved)
	wantSilent(t, table)

	// A regular chain becomes a base chain and back, while its referrer goes.
	toPods := *table.chains["to-pods"].desired
	asBase := toPods
	asBase.Hook = &tables.Hook{Type: tables.HookFilter, Point: tables.HookPostrouting}
	table.UpdateChain(asBase)
	table.RemoveChain("forward")
	apply(t, table)
	wantSilent(t, table)
	table.UpdateChain(toPods)
	table.UpdateChain(moved)
	apply(t, table)
	wantSilent(t, table)
	table.Invalidate()
	wantSilent(t, table)
}

func TestSetChangesItsType(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	table.RemoveSet("aweb-4")
	table.CreateSet(ipsets.Set{Name: "aweb-4", Kind: model.Networks, Family: model.IPv4})
	table.AddMembers("aweb-4", membersOf("10.0.0.0/8"))
	apply(t, table)
	if listing := ns.list(t); !strings.Contains(listing, "elements = { 10.0.0.0/8 }") {
		t.Error(listing)
	}
	wantSilent(t, table)
	table.Invalidate()
	wantSilent(t, table)
}

func TestRemovedAndWantedAgain(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	before := ns.list(t, "-a")
	table.RemoveSet("aweb-4")
	table.RemoveSet("phttp-4")
	table.RemoveChain("forward")
	loadExample(table)
	wantSilent(t, table)
	if diff := cmp.Diff(before, ns.list(t, "-a")); diff != "" {
		t.Error(diff)
	}
}

func TestRemove(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	if err := table.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	ns.nft(t, "table inet other { chain c { }; }")
	loadExample(table)
	apply(t, table)
	before := ns.list(t)
	if err := table.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if got := ns.run(t, "nft", "list", "ruleset"); got != "table inet other {\n\tchain c {\n\t}\n}\n" {
		t.Errorf("left: %s", got)
	}
	s, err := table.Snapshot(t.Context())
	if err != nil || s.Exists {
		t.Errorf("snapshot: %+v, %v", s, err)
	}
	apply(t, table)
	if diff := cmp.Diff(before, ns.list(t)); diff != "" {
		t.Error(diff)
	}
}

func TestTableDeletedBehindOurBack(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	before := ns.list(t)
	ns.nft(t, "delete table inet felixlike")
	table.AddMembers("aweb-4", membersOf("10.0.0.9"))
	r := apply(t, table)
	if !r.FullRead || r.RulesAdded != exampleRules || len(r.Repaired) != 1 || r.Repaired[0].What != "deleted" {
		t.Errorf("recovery: %+v", r)
	}
	if diff := cmp.Diff(strings.Replace(before, "10.0.0.1, 10.0.0.2 }", "10.0.0.1, 10.0.0.2,\n\t\t\t     10.0.0.9 }", 1), ns.list(t)); diff != "" {
		t.Error(diff)
	}
	wantSilent(t, table)
}

func TestForeignTablesStay(t *testing.T) {
	ns := newNamespace(t)
	ns.nft(t, `table inet other { set aweb-4 { type ipv4_addr; elements = { 9.9.9.9 }; }
		chain forward { type filter hook forward priority 5; ip saddr @aweb-4 drop comment "flx:aaaaaaaaaaaaaa"; }; }
		table ip felixlike { chain forward { accept; }; }`)
	other := func() string {
		return ns.run(t, "nft", "-a", "list", "table", "inet", "other") + ns.run(t, "nft", "-a", "list", "table", "ip", "felixlike")
	}
	before := other()
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	if err := table.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, other()); diff != "" {
		t.Error(diff)
	}
}

func TestCancelledContext(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := table.Apply(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
