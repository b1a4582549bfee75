package iptables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// loops are chains that lead to others; of each loop, one has to stand closed.
var loops = map[string]string{"loop-a": "loop-b", "loop-b": "loop-c", "loop-c": "loop-a", "self": "self", "a": "b", "b": "a"}

// loadLoops loads the loops, or the same chains without the rule that closes the loop,
// among a hundred other chains.
func loadLoops(table *Table, good bool) {
	base := tables.Chain{Name: "forward", Hook: &tablestest.Forward}
	for i := range 100 {
		name := fmt.Sprintf("c%02d", i)
		table.UpdateChain(tables.Chain{Name: name, Rules: []tables.Rule{rule(tables.Return{}, "of "+name)}})
		base.Rules = append(base.Rules, rule(tables.Jump{Chain: name}, ""))
	}
	for _, name := range sorted(loops) {
		c := tables.Chain{Name: name, Rules: []tables.Rule{rule(tables.Return{}, "fine")}}
		if !good {
			c.Rules = append(c.Rules, rule(tables.Jump{Chain: loops[name]}, "leads to "+loops[name]))
		}
		table.UpdateChain(c)
		base.Rules = append(base.Rules, rule(tables.Jump{Chain: name}, ""))
	}
	table.UpdateChain(base)
}

// Loops are found by the kernel. Legacy names nothing, so the chains are
// searched. One chain of each loop is closed, on the first load and later.
func TestLoopsAmongManyChains(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		loadLoops(table, false)
		if r := apply(t, table); len(r.Refused) != 3 {
			t.Fatalf("%q", refused(r))
		}
		loadLoops(table, true)
		table.UpdateChain(tables.Chain{Name: "before", Rules: []tables.Rule{rule(tables.Return{}, "goes")}})
		table.UpdateChain(tables.Chain{Name: "forward", Hook: &tablestest.Forward, Rules: []tables.Rule{rule(tables.Jump{Chain: "before"}, "")}})
		apply(t, table)
		table.RemoveChain("before")
		loadLoops(table, false)
		table.tools.restores, table.tools.saves = 0, 0
		r := apply(t, table)
		t.Logf("%d restores, %d saves: %q", table.tools.restores, table.tools.saves, refused(r))
		if len(r.Refused) != 3 {
			t.Fatalf("%q", refused(r))
		}
		state := h.state(t)
		if strings.Contains(state, "flx-before") {
			t.Error("a chain that is not wanted is still there")
		}
		for i := range 100 {
			if !strings.Contains(state, fmt.Sprintf(`-m comment --comment "of c%02d" -j RETURN`, i)) {
				t.Errorf("chain c%02d is not in", i)
			}
		}
		for _, f := range r.Refused {
			if diff := cmp.Diff([]string{"DROP"}, h.targets(t, model.IPv4, "flx-"+f.Name)); diff != "" {
				t.Errorf("%s: %s", f.Name, diff)
			}
		}
		wantSilent(t, table)
		loadLoops(table, true)
		if r := apply(t, table); len(r.Refused) != 0 {
			t.Errorf("%q", refused(r))
		}
		table.Invalidate()
		wantSilent(t, table)
	})
}

// A change that closes a loop of programmed chains does not hold up another change.
func TestLoopInAChange(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		loadLoops(table, true)
		table.UpdateChain(tables.Chain{Name: "c07", Rules: []tables.Rule{rule(tables.Jump{Chain: "c08"}, "")}})
		apply(t, table)
		table.UpdateChain(tables.Chain{Name: "c08", Rules: []tables.Rule{rule(tables.Jump{Chain: "c07"}, "back")}})
		table.UpdateChain(tables.Chain{Name: "c09", Rules: []tables.Rule{rule(tables.Accept{}, "news")}})
		want := map[Variant]string{
			Legacy: "c08: : it leads back to itself: c08 > c07 > c08",
			NFT:    "c08: rule 0 (jump c07, back): it leads back to itself: c08 > c07 > c08",
		}
		if diff := cmp.Diff([]string{want[v]}, refused(apply(t, table))); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"ACCEPT"}, h.targets(t, model.IPv4, "flx-c09")); diff != "" {
			t.Error(diff)
		}
		table.Invalidate()
		wantSilent(t, table)
	})
}

// What no chain is at fault for is an error in the tool's words.
func TestToolThatCannotRun(t *testing.T) {
	h := newHost(t, NFT)
	table := h.open(t)
	loadExample(table)
	apply(t, table)
	good := table.tools.restore[model.IPv6]
	table.UpdateChain(tables.Chain{Name: "to-pods"})
	for _, script := range []string{
		"#!/bin/sh\necho cannot initialize >&2\nexit 3\n",
		"#!/bin/sh\necho Could not fetch rule set generation id: cannot initialize >&2\nexit 4\n",
		"#!/bin/sh\necho line 1 failed: cannot initialize >&2\nexit 1\n",
		"#!/bin/sh\necho cannot initialize, line 99999 >&2\nexit 1\n",
	} {
		table.tools.restore[model.IPv6] = writeScript(t, script)
		_, err := table.Apply(t.Context())
		if err == nil || !strings.Contains(err.Error(), "cannot initialize") || len(table.quarantine.refused) != 0 {
			t.Errorf("%v, %v", err, table.quarantine.refused)
		}
	}
	table.tools.restore[model.IPv6] = good
	apply(t, table)
	table.Invalidate()
	wantSilent(t, table)
}

// The search finds refused chains of one family even if the kernel also refuses chains
// of the other.
func TestLoopsOfBothFamilies(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		base := tables.Chain{Name: "forward", Hook: &tablestest.Forward}
		loops := map[string]string{"loop-4": "10.0.0.0/8", "loop-6": "fd00::/8"}
		for _, name := range append(sorted(loops), "other") {
			base.Rules = append(base.Rules, rule(tables.Jump{Chain: name}, ""))
			table.UpdateChain(tables.Chain{Name: name, Rules: []tables.Rule{rule(tables.Return{}, "old")}})
		}
		table.UpdateChain(base)
		apply(t, table)
		for name, of := range loops {
			table.UpdateChain(tables.Chain{Name: name, Rules: []tables.Rule{
				rule(tables.Return{}, "old"), rule(tables.Jump{Chain: name}, "", prefix(tables.Source, of, false)),
			}})
		}
		table.UpdateChain(tables.Chain{Name: "other", Rules: []tables.Rule{rule(tables.Accept{}, "new")}})
		if r := apply(t, table); len(r.Refused) != 2 || r.Refused[0].Name != "loop-4" || r.Refused[1].Name != "loop-6" {
			t.Errorf("%q", refused(r))
		}
		for _, f := range model.Families() {
			if diff := cmp.Diff([]string{"ACCEPT"}, h.targets(t, f, "flx-other")); diff != "" {
				t.Error(diff)
			}
		}
		wantSilent(t, table)
		table.Invalidate()
		wantSilent(t, table)
	})
}

// The driver does not take a foreign change of a rule for the text that the tools print,
// even if it writes the tables while the rule's chain waits for its turn.
func TestAlteredRuleDuringASearch(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		loadExample(table)
		apply(t, table)
		good := h.state(t)
		closed := rule(tables.Drop{}, "closed", prefix(tables.Destination, "10.10.0.0/24", false))
		alter := func() {
			h.restore(t, model.IPv4, "*filter\n-R flx-to-pods 2 "+strings.Replace(written(closed), "-j DROP", "-j ACCEPT", 1)+"\nCOMMIT\n")
			table.Invalidate()
		}
		alter()
		if h.state(t) == good {
			t.Fatal("nothing is altered")
		}
		forward := *table.chains["forward"].desired
		with := forward
		with.Rules = append(with.Rules[:2:2], rule(tables.Jump{Chain: "self"}, ""), forward.Rules[2])
		table.UpdateChain(with)
		table.UpdateChain(tables.Chain{Name: "self", Rules: []tables.Rule{rule(tables.Jump{Chain: "self"}, "")}})
		r := apply(t, table)
		t.Logf("%q, %+v", refused(r), r.Repaired)
		for range 2 {
			table.UpdateChain(forward)
			table.RemoveChain("self")
			apply(t, table)
			if diff := cmp.Diff(good, h.state(t)); diff != "" {
				t.Error(diff)
			}
			alter()
		}
	})
}
