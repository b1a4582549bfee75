package nftables

import (
	"reflect"
	"testing"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// TestModuleRules: before a table is loaded, the kernel checks one rule for each kind of match and of action in it.
func TestModuleRules(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	table.UpdateChain(tables.Chain{
		Name: "postrouting", Hook: &tables.Hook{Type: tables.HookNAT, Point: tables.HookPostrouting},
		Rules: []tables.Rule{{Matches: []tables.Match{tables.MatchLocal{Side: tables.Source, Negated: true}}, Action: tables.Masquerade{}}},
	})
	p := table.planner.plan(true)
	want := map[reflect.Type]int{}
	for _, o := range append(slicesOf(append(p.first, p.head...)), p.tail...) {
		if o.Kind == kernel.AddRule {
			want[reflect.TypeOf(o.Rule.Action)] = 1
			for _, m := range o.Rule.Matches {
				want[reflect.TypeOf(m)] = 1
			}
		}
	}
	got, nat := map[reflect.Type]int{}, 0
	for _, o := range moduleOps(p.batches(table.limit)) {
		switch {
		case o.Kind == kernel.AddChain && o.Hook != nil:
			nat++
		case o.Kind == kernel.AddRule && len(o.Rule.Matches) > 0:
			got[reflect.TypeOf(o.Rule.Matches[0])]++
		case o.Kind == kernel.AddRule:
			got[reflect.TypeOf(o.Rule.Action)]++
		}
	}
	if !reflect.DeepEqual(got, want) || len(want) < 8 {
		t.Errorf("rules for %v, want %v", got, want)
	}
	if nat != 1 {
		t.Errorf("%d chains of the type nat, want 1", nat)
	}
	apply(t, table)
}

func slicesOf(groups []group) (all []kernel.Op) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}
