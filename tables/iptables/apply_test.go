package iptables

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

var update = flag.Bool("update", false, "write testdata anew")

// The kernel's state of the example, chain by chain: the same in both variants.
func TestSavedText(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		loadExample(table)
		apply(t, table)
		tablestest.Golden(t, *update, "saved.txtar", h.state(t))
	})
}

func TestSecondApplyRunsNothing(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		loadExample(table)
		r := apply(t, table)
		if !r.FullRead || r.Rules != r.RulesAdded || r.RulesDeleted != 0 || table.tools.saves != 2 || table.tools.restores != 2 {
			t.Errorf("first load: %+v, %+v", r, table.tools)
		}
		before := h.state(t)
		wantSilent(t, table)
		loadExample(table)
		if r := apply(t, table); r.Messages != 0 || r.FullRead || table.tools.saves != 2 {
			t.Errorf("the same again: %+v", r)
		}
		table.Invalidate()
		wantSilent(t, table)

		restarted := h.open(t)
		loadExample(restarted)
		wantSilent(t, restarted)
		if len(restarted.observed.learned) != 0 {
			t.Errorf("the tool prints otherwise than we do: %v", restarted.observed.learned)
		}
		if diff := cmp.Diff(before, h.state(t)); diff != "" {
			t.Errorf("a restart has changed something:\n%s", diff)
		}
	})
}

// Rules that reject are printed as we write them, in both families.
func TestRejectIsReadBack(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		load := func(table *Table) {
			others := tables.MatchProtocol{Protocol: model.TCP, Negated: true}
			table.UpdateChain(tables.Chain{Name: "passed", Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward}, Rules: []tables.Rule{
				rule(tables.Reject{With: tables.TCPReset, PerSecond: 500}, "rejected", proto(model.TCP)),
				rule(tables.Reject{With: tables.AdminProhibited, Family: model.IPv4, PerSecond: 500}, "rejected", others),
				rule(tables.Reject{With: tables.AdminProhibited, Family: model.IPv6, PerSecond: 5}, "", others),
			}})
		}
		table := h.open(t)
		load(table)
		if r := apply(t, table); r.RulesAdded != 6 {
			t.Errorf("%+v", r)
		}
		restarted := h.open(t)
		load(restarted)
		wantSilent(t, restarted)
		if len(restarted.observed.learned) != 0 {
			t.Errorf("the tool prints otherwise than we do: %v", restarted.observed.learned)
		}
	})
}

// Another program empties the tables after Apply has read them and before it writes, some times in a row. No chain is
// refused for it, and Apply programs all chains.
func TestEmptiedAfterTheRead(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		for times := range 4 {
			for _, f := range model.Families() {
				h := newHost(t, v)
				table := h.open(t)
				loadExample(table)
				apply(t, table)
				before := h.state(t)
				table.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{rule(tables.Accept{}, "other", proto(model.UDP))}})
				apply(t, table)
				table.Invalidate()
				loadExample(table)
				h.emptyBefore(t, table, f, times)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				r, err := table.Apply(ctx)
				for range 5 {
					if err == nil {
						break
					}
					t.Logf("IPv%s, %d times: %v", f, times, err) // the agent tries again
					r, err = table.Apply(ctx)
				}
				cancel()
				if err != nil || len(r.Refused) > 0 {
					t.Errorf("IPv%s, %d times: %v, refused %q", f, times, err, refused(r))
				}
				if diff := cmp.Diff(before, h.state(t)); diff != "" {
					t.Errorf("IPv%s, %d times:\n%s", f, times, diff)
				}
			}
		}
	})
}

// emptyBefore has the tables of a family emptied before each of the next restores.
func (h host) emptyBefore(t *testing.T, table *Table, f model.Family, times int) {
	t.Helper()
	dir, tool := t.TempDir(), strings.TrimSuffix(h.tool(f, ""), "-")
	var empty strings.Builder
	for _, name := range []string{"mangle", "raw", "filter"} {
		fmt.Fprintf(&empty, "  %[1]s -w -t %[2]s -F; %[1]s -w -t %[2]s -X\n", tool, name)
	}
	script := fmt.Sprintf("#!/bin/sh\nn=$(cat %[1]s/n)\nif [ $n -gt 0 ]; then\n  echo $((n - 1)) >%[1]s/n\n%[2]sfi\nexec %[3]s \"$@\"\n", dir, empty.String(), table.tools.restore[f])
	for name, text := range map[string]string{"n": fmt.Sprint(times), "restore": script} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	table.tools.restore[f] = filepath.Join(dir, "restore")
}

// The renderer's longest names fit.
func TestNamesOfTheRenderer(t *testing.T) {
	if MaxName != rules.IPTablesNameLength {
		t.Errorf("the driver takes names of %d characters, the renderer makes %d", MaxName, rules.IPTablesNameLength)
	}
	if Prefix != ipsets.KernelPrefix {
		t.Errorf("chains begin with %q, sets with %q", Prefix, ipsets.KernelPrefix)
	}
}

// For any output of the tool the parser ends, and finds only our objects.
func FuzzParseSaved(f *testing.F) {
	saved, err := os.ReadFile("testdata/saved.txtar")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(saved))
	f.Add("*filter\n:flx-a - [0:0]\n-A FORWARD -j flx-a\n-A flx-a -m comment --comment \"flx:x\n-A \n-A flx-b\n:\n*\n-A FORWARD -m comment --comment flx:y -g")
	f.Add("-A flx-a -j flx-a\n# Table `nat' is incompatible, use 'nft' tool.\n")
	f.Fuzz(func(t *testing.T, out string) {
		s := parseSaved(out)
		for k := range s.tables {
			for chain, e := range s.tables[k].entries {
				if strings.HasPrefix(chain, Prefix) || e.first > len(e.texts) {
					t.Errorf("entry %s: %+v", chain, e)
				}
				for _, text := range e.texts {
					if hashIn(text) == "" || !strings.HasPrefix(targetOf(text), Prefix) {
						t.Errorf("entry %s: rule %q is not ours", chain, text)
					}
				}
			}
		}
	})
}
