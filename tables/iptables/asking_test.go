package iptables

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// If a policy is refused, no packet reaches the pods that it applies to, even if their
// other policies allow it, and in every chain that evaluates them.
func TestRefusedPolicyClosesWhoAsksIt(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		p := tablestest.NewPath(t, toolsOf(v)...)
		h := host{p.Router, v}
		table := h.open(t)
		now := clock(table)
		good := rule(tables.Accept{}, "", proto(model.UDP), ports(80, 80))
		tablestest.LoadAsking(table, good)
		apply(t, table)
		before := h.state(t)
		p.Want(t, tablestest.AskingPackets(false))
		for _, spoil := range []func(){
			func() { // the kernel does not take it
				tablestest.LoadAsking(table, rule(tables.Accept{}, "", srcSet(model.IPv4, "alate-4")))
			},
			func() { tablestest.LoadAsking(table, rule(tables.Masquerade{}, "")) }, // wrong in itself
			func() { // its set is quarantined
				table.QuarantineSets([]tables.Refusal{{Object: "set", Name: "alate-4"}})
				tablestest.LoadAsking(table, rule(tables.Accept{}, "", srcSet(model.IPv4, "alate-4")))
			},
		} {
			spoil()
			for range 2 { // the second time in vain
				r := apply(t, table)
				if len(r.Refused) != 1 || !slices.Equal(r.Refused[0].Closed, tablestest.ClosedByBad()) {
					t.Errorf("%+v", r.Refused)
				}
				for _, name := range tablestest.ClosedByBad() {
					if diff := cmp.Diff([]string{"DROP"}, h.targets(t, model.IPv4, KernelName(name))); diff != "" {
						t.Errorf("%s: %s", name, diff)
					}
				}
				p.Want(t, tablestest.AskingPackets(true))
				wantSilent(t, table)
				table.Invalidate()
				wantSilent(t, table)
				*now = now.Add(isolate.FirstWait)
			}
			table.QuarantineSets(nil)
			tablestest.LoadAsking(table, good)
			if r := apply(t, table); len(r.Refused) != 0 {
				t.Errorf("%+v", r)
			}
			if diff := cmp.Diff(before, h.state(t)); diff != "" {
				t.Error(diff)
			}
		}
		p.Want(t, tablestest.AskingPackets(false))
	})
}
