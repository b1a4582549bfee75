package iptables

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// others are rules and chains as kube-proxy and docker have them.
func (h host) others(t testing.TB) {
	t.Helper()
	h.table(t, "filter",
		":KUBE-FORWARD - [0:0]", ":KUBE-SERVICES - [0:0]", ":DOCKER-USER - [0:0]",
		`-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`,
		"-A FORWARD -j DOCKER-USER",
		"-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
		`-A KUBE-FORWARD -m comment --comment "looks like -j flx-forward but is none" -j ACCEPT`,
		"-A DOCKER-USER -j RETURN")
	h.table(t, "nat",
		":KUBE-POSTROUTING - [0:0]",
		`-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`,
		"-A KUBE-POSTROUTING -j RETURN")
	h.table(t, "mangle", ":KUBE-KUBELET-CANARY - [0:0]")
}

// Rules of others keep their order; ours come before them, and go again
// without a trace.
func TestOthersStay(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		h.others(t)
		before := h.state(t)
		table := h.open(t)
		wantExists(t, h, false)
		loadExample(table)
		apply(t, table)
		wantExists(t, h, true)
		for _, f := range model.Families() {
			if diff := cmp.Diff([]string{"flx-forward", "KUBE-FORWARD", "DOCKER-USER"}, h.targets(t, f, "FORWARD")); diff != "" {
				t.Error(diff)
			}
		}
		wantSilent(t, table)
		if err := table.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, h.state(t)); diff != "" {
			t.Errorf("after Remove (-before +after):\n%s", diff)
		}
		wantExists(t, h, false)
		if err := table.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		apply(t, table)
		wantSilent(t, table)
		table.Invalidate()
		wantSilent(t, table)
	})
}

// wantExists asks, as another process, whether there is a chain of ours.
func wantExists(t *testing.T, h host, want bool) {
	t.Helper()
	if got, err := h.open(t).Exists(t.Context()); err != nil || got != want {
		t.Errorf("a chain of ours exists: %v, %v; want %v", got, err, want)
	}
}

// targets lists where the rules of a chain lead to.
func (h host) targets(t testing.TB, f model.Family, chain string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(h.save(t, f)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "-A "+chain+" "); ok {
			out = append(out, rest[strings.LastIndex(rest, " ")+1:])
		}
	}
	return out
}

// The next full read finds foreign changes of our rules. Apply repairs and reports
// them. The rules of other programs stay.
func TestRepair(t *testing.T) {
	spec := func(name string) string {
		return written(rule(tables.Jump{Chain: name}, "felixlike "+name))
	}
	for _, c := range []struct {
		name     string
		commands []string // on the filter table of IPv4
		want     []string
		stays    []string // of what the kernel has in FORWARD afterwards
	}{
		{
			"a rule before ours",
			[]string{"-I FORWARD 1 -j KUBE-FORWARD"},
			[]string{"FORWARD IPv4 filter: the rule that leads to flx-forward does not come first"},
			[]string{"flx-forward", "KUBE-FORWARD", "KUBE-FORWARD", "DOCKER-USER"},
		},
		{
			"our rule deleted",
			[]string{"-D FORWARD " + spec("forward")},
			[]string{"FORWARD IPv4 filter: the rule that leads to flx-forward is missing"},
			nil,
		},
		{
			"our rule behind",
			[]string{"-D FORWARD " + spec("forward"), "-A FORWARD " + spec("forward")},
			[]string{"FORWARD IPv4 filter: the rule that leads to flx-forward does not come first"},
			nil,
		},
		{
			"our rule twice",
			[]string{"-A FORWARD " + spec("forward")},
			[]string{"FORWARD IPv4 filter: the rules that lead to flx-forward are not as they were"},
			nil,
		},
		{
			"our rule altered",
			[]string{"-R FORWARD 1 -p tcp " + spec("forward")},
			[]string{"FORWARD IPv4 filter: the rules that lead to flx-forward are not as they were"},
			nil,
		},
		{
			"everything flushed",
			[]string{"-F FORWARD", "-F flx-forward", "-F flx-to-pods"},
			[]string{
				"FORWARD IPv4 filter: the rule that leads to flx-forward is missing",
				"forward IPv4 filter: 3 rules missing", "to-pods IPv4 filter: 4 rules missing",
			},
			[]string{"flx-forward"},
		},
		{"a rule more", []string{"-I flx-forward 1 -p udp -j ACCEPT"}, []string{"forward IPv4 filter: 1 foreign rule"}, nil},
		{"a rule less", []string{"-D flx-forward 2"}, []string{"forward IPv4 filter: 1 rule missing"}, nil},
		{
			"another order",
			[]string{
				"-D flx-forward 3",
				"-I flx-forward 1 " + written(rule(tables.Drop{}, "", device(tables.Source, "eth0", true), tables.MatchConnState{States: tables.StateInvalid})),
			},
			[]string{"forward IPv4 filter: 1 rule moved"},
			nil,
		},
		{
			"another text under our comment",
			[]string{
				"-R flx-forward 3 " + strings.Replace(written(rule(tables.Drop{}, "", device(tables.Source, "eth0", true), tables.MatchConnState{States: tables.StateInvalid})), "-j DROP", "-j ACCEPT", 1),
			},
			[]string{"forward IPv4 filter: 1 rule changed"},
			nil,
		},
		{
			"a chain more",
			[]string{":flx-stray - [0:0]", "-A flx-stray -j flx-to-pods", "-A flx-forward -j flx-stray"},
			[]string{"forward IPv4 filter: 1 foreign rule", "stray IPv4 filter: foreign chain"},
			nil,
		},
		{
			"a chain less",
			[]string{"-F flx-pods-in-x/base-1", "-F flx-pin-x/base-1", "-X flx-pin-x/base-1"},
			[]string{"pin-x/base-1 IPv4 filter: deleted", "pods-in-x/base-1 IPv4 filter: 8 rules missing"},
			nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachVariant(t, func(t *testing.T, v Variant) {
				h := newHost(t, v)
				h.others(t)
				table := h.open(t)
				loadExample(table)
				apply(t, table)
				before := h.state(t)
				h.restore(t, model.IPv4, "*filter\n"+strings.Join(c.commands, "\n")+"\nCOMMIT\n")
				wantSilent(t, table)
				table.Invalidate()
				r := apply(t, table)
				var got []string
				for _, repair := range r.Repaired {
					got = append(got, repair.Name+" "+repair.What)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
				if c.stays == nil {
					if diff := cmp.Diff(before, h.state(t)); diff != "" {
						t.Errorf("after the repair (-before +after):\n%s", diff)
					}
				} else if diff := cmp.Diff(c.stays, h.targets(t, model.IPv4, "FORWARD")); diff != "" {
					t.Error(diff)
				}
				wantSilent(t, table)
				table.Invalidate()
				wantSilent(t, table)
				if len(table.observed.learned) != 0 {
					t.Errorf("learned %v", table.observed.learned)
				}
			})
		})
	}
}

// A foreign change since the last read makes no write fail: Apply reads again, and
// repairs both.
func TestWriteOnChangedTables(t *testing.T) {
	for _, c := range []struct{ name, commands string }{
		{"our chains are empty", "-F flx-to-pods\n-F flx-forward"},
		{"our chains are gone", "-F FORWARD\n-F flx-forward\n-F flx-to-pods\n-F flx-pods-in-x/base-1\n-F flx-pin-x/base-1\n-X flx-forward\n-X flx-to-pods\n-X flx-pods-in-x/base-1\n-X flx-pin-x/base-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachVariant(t, func(t *testing.T, v Variant) {
				h := newHost(t, v)
				table := h.open(t)
				loadExample(table)
				apply(t, table)
				before := h.state(t)
				h.restore(t, model.IPv4, "*filter\n"+c.commands+"\nCOMMIT\n")
				edited := *table.chains["to-pods"].desired
				edited.Rules = append([]tables.Rule{}, edited.Rules...)
				edited.Rules[2] = rule(tables.Drop{}, "new", prefix(tables.Destination, "10.10.0.0/24", false))
				table.UpdateChain(edited)
				r := apply(t, table)
				if !r.FullRead || len(r.Repaired) == 0 || len(r.Refused) != 0 {
					t.Errorf("%+v", r)
				}
				table.Invalidate()
				wantSilent(t, table)
				loadExample(table)
				apply(t, table)
				if diff := cmp.Diff(before, h.state(t)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// The kernel does not delete a chain while a rule of another program leads to it. The
// chain stays, empty, until that rule is gone; Remove removes the rule too.
func TestStrangeRuleHoldsAChain(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		loadExample(table)
		apply(t, table)
		h.restore(t, model.IPv4, "*filter\n-A INPUT -p tcp -j flx-pin-x/base-1\nCOMMIT\n")
		table.RemoveChain("pin-x/base-1")
		table.UpdateChain(tables.Chain{Name: "pods-in-x/base-1", Rules: []tables.Rule{rule(tables.Drop{}, "")}})
		if r := apply(t, table); !r.FullRead {
			t.Errorf("%+v", r)
		}
		if state := h.state(t); strings.Count(state, "flx-pin-x/base-1") != 2 || !strings.Contains(state, "-A INPUT -p tcp -j flx-pin-x/base-1\n") {
			t.Error(state)
		}
		wantSilent(t, table)
		table.Invalidate()
		wantSilent(t, table)
		h.restore(t, model.IPv4, "*filter\n-D INPUT -p tcp -j flx-pin-x/base-1\nCOMMIT\n")
		table.Invalidate()
		apply(t, table)
		if state := h.state(t); strings.Contains(state, "pin-x/base-1 -\n") && strings.Contains(state, ":flx-pin-") {
			t.Error(state)
		}

		h.restore(t, model.IPv4, "*filter\n-A INPUT -p tcp -j flx-to-pods\nCOMMIT\n")
		if err := table.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if state := h.state(t); state != "" {
			t.Error(state)
		}
	})
}

// The tool that prints a rule otherwise than expected costs one write, after
// which the rule is known as the tool prints it.
func TestUnexpectedTextIsLearned(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		// A program of another version: it knows port 80 by name.
		script := fmt.Sprintf("#!/bin/sh\n%s \"$@\" | sed 's/--dport 80 /--dport http /'\n", h.tool(model.IPv4, "save"))
		loadExample(table)
		apply(t, table)
		table.tools.save[model.IPv4] = writeScript(t, script)
		table.Invalidate()
		if r := apply(t, table); r.Messages != 1 || len(r.Repaired) != 0 {
			t.Errorf("%+v", r)
		}
		wantSilent(t, table)
		table.Invalidate()
		wantSilent(t, table)
		// Unnoticed foreign changes are still found.
		hash := table.objects.chains["pin-x/base-1"].hashes[0]
		h.restore(t, model.IPv4, "*filter\n-R flx-pin-x/base-1 1 -m comment --comment flx:"+hash+" -j ACCEPT\nCOMMIT\n")
		table.Invalidate()
		if r := apply(t, table); r.Messages != 1 || len(r.Repaired) != 1 {
			t.Errorf("%+v", r)
		}
		table.Invalidate()
		wantSilent(t, table)
	})
}

// A table that another program has made unreadable for iptables is programmed all the same, as are the others: our rules in it are
// known by their comments. Result.Unreadable names it.
func TestUnreadableTable(t *testing.T) {
	for _, c := range []struct {
		name string
		// chains have the foreign rules, in all four tables, both families: at the head, and at the end.
		chain string
		add   bool
	}{{"chain of its own", "theirs", true}, {"before our entries", "FORWARD", false}, {"behind our entries", "FORWARD", true}, {"in a chain of ours", "flx-base", false}} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, NFT)
			table := h.open(t)
			loadExample(table)
			base := tables.Chain{Name: "base", Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward}, Rules: []tables.Rule{rule(tables.Jump{Chain: "part"}, "")}}
			part := tables.Chain{Name: "part", Rules: []tables.Rule{rule(tables.Return{}, "one")}}
			table.UpdateChain(base)
			table.UpdateChain(part)
			apply(t, table)
			verb := "insert"
			if c.add {
				verb = "add"
			}
			for _, table := range []string{"ip filter", "ip6 filter"} {
				h.Run(t, "nft", "add chain "+table+" "+c.chain)
				h.Run(t, "nft", verb+" rule "+table+" "+c.chain+" meta mark set numgen inc mod 2")
			}
			table.Invalidate()
			if out := h.save(t, model.IPv4); !strings.Contains(out, "is incompatible") {
				t.Fatalf("iptables-save shows the table:\n%s", out)
			}
			apply(t, table) // which repairs foreign changes
			change := func(table *Table) {
				part.Rules = []tables.Rule{rule(tables.Drop{}, "two"), rule(tables.Return{}, "three")}
				table.UpdateChain(part)
				// In a table that iptables shows.
				table.UpdateChain(tables.Chain{Name: "early", Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookPrerouting, Priority: -300}, Rules: []tables.Rule{rule(tables.Return{}, "")}})
			}
			change(table)
			r, hidden := apply(t, table), c.chain != "flx-base"
			if r.Messages == 0 {
				t.Errorf("a change: %+v", r)
			}
			table.Invalidate()
			if r = apply(t, table); r.Messages != 0 {
				t.Errorf("read again: %+v", r)
			}
			if n := len(r.Unreadable); hidden && (n != 2 || !strings.Contains(r.Unreadable[0], "table filter of IPv4")) || !hidden && n != 0 {
				t.Errorf("unreadable: %q", r.Unreadable)
			}
			again := h.open(t)
			loadExample(again)
			again.UpdateChain(base)
			change(again)
			if r := apply(t, again); r.Messages != 0 {
				t.Errorf("after a restart: %+v", r)
			}
			for _, family := range []string{"ip", "ip6"} {
				forward := h.Run(t, "nft", "-s", "list chain "+family+" filter FORWARD")
				if first := strings.Fields(strings.SplitN(forward, "policy accept;", 2)[1]); len(first) < 3 || first[1] != "jump" {
					t.Errorf("our entries are not the first rules:\n%s", forward)
				}
			}
			// An own chain that is not wanted any more leaves such a table too.
			again.RemoveChain("base")
			again.RemoveChain("part")
			apply(t, again)
			again.UpdateChain(base)
			again.UpdateChain(part)
			apply(t, again)
			if hidden {
				for _, family := range []string{"ip", "ip6"} {
					if c.chain != "theirs" {
						handle := regexp.MustCompile(`numgen.* # handle (\d+)`).FindStringSubmatch(h.Run(t, "nft", "-a", "list chain "+family+" filter "+c.chain))
						h.Run(t, "nft", "delete rule "+family+" filter "+c.chain+" handle "+handle[1])
						continue
					}
					h.Run(t, "nft", "delete chain "+family+" filter theirs")
				}
			}
			// Now iptables shows the table, and it is as it would be without the foreign rule.
			again.Invalidate()
			if r := apply(t, again); r.Messages != 0 || len(r.Unreadable) != 0 {
				t.Errorf("once it can be shown: %+v", r)
			}
			got := h.state(t)
			if err := again.Remove(t.Context()); err != nil {
				t.Fatal(err)
			}
			alone := h.open(t)
			loadExample(alone)
			alone.UpdateChain(base)
			change(alone)
			apply(t, alone)
			if diff := cmp.Diff(h.state(t), got); diff != "" {
				t.Errorf("(-without the foreign rule +got):\n%s", diff)
			}
		})
	}
}
