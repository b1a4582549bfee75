package iptables

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// The first Apply, or Remove, removes the leftovers of another version of ours, for
// any names of its chains.
func TestLeftovers(t *testing.T) {
	left := []string{
		":flx-old-forward - [0:0]", ":flx-old-policy - [0:0]",
		"-A flx-old-forward -j flx-old-policy", "-A flx-old-policy -j flx-old-end", "-A flx-old-end -p tcp -j RETURN",
		`-I FORWARD 1 -m comment --comment "flx:older words" -j flx-old-forward`,
		`-I INPUT 1 -m comment --comment "flx:oldhash" -m comment --comment "from before" -j flx-old-forward`,
	}
	left = append([]string{":flx-old-end - [0:0]"}, left...)
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		h.others(t)
		theirs := h.state(t)
		table := h.open(t)
		loadExample(table)
		apply(t, table)
		alone := h.state(t)
		h.table(t, "filter", left...)
		h.table(t, "mangle", ":flx-old-mangle - [0:0]", `-A PREROUTING -m comment --comment "flx:x" -j flx-old-mangle`)
		restarted := h.open(t)
		loadExample(restarted)
		// The ways in are put in order again, and nothing else of ours is touched.
		if r := apply(t, restarted); r.RulesAdded != 2 || len(r.Repaired) != 0 {
			t.Errorf("%+v", r)
		}
		if diff := cmp.Diff(alone, h.state(t)); diff != "" {
			t.Error(diff)
		}
		h.table(t, "filter", left...)
		if err := h.open(t).Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(theirs, h.state(t)); diff != "" {
			t.Error(diff)
		}
	})
}

// A chain in filter drops what a chain in mangle has not marked. While both are removed, one
// table after the other, no packet is dropped.
func TestRemovalDropsNothing(t *testing.T) {
	forward := func(name string, priority int32, rules ...tables.Rule) tables.Chain {
		hook := tablestest.Forward
		hook.Priority = priority
		return tables.Chain{Name: name, Hook: &hook, Rules: rules}
	}
	const mark = 0x40
	packets := []tablestest.PacketCase{
		tablestest.Packet(model.UDP, "10.1.0.1", "10.2.0.1", 80, true), tablestest.Packet(model.UDP, "fd01::1", "fd02::1", 80, true),
	}
	eachVariant(t, func(t *testing.T, v Variant) {
		p := tablestest.NewPath(t, toolsOf(v)...)
		h := host{p.Router, v}
		empty := h.state(t)
		table := h.open(t)
		table.UpdateChain(forward("judge", -150, rule(tables.SetMark{Value: mark, Mask: mark}, "")))
		table.UpdateChain(forward("passed", 0,
			rule(tables.Accept{}, "judged", tables.MatchMark{Value: mark, Mask: mark}), rule(tables.Drop{}, "not judged")))
		apply(t, table)
		p.Want(t, packets)
		for _, f := range model.Families() {
			found, err := table.tools.readShown(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for section := range strings.SplitAfterSeq(removal(f, found).text.String(), "COMMIT\n") {
				h.restore(t, f, section)
				p.Want(t, packets)
			}
		}
		if diff := cmp.Diff(empty, h.state(t)); diff != "" {
			t.Errorf("(-before +removed):\n%s", diff)
		}
	})
}

// The other variant's rules are none of our business.
func TestOtherVariantStays(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		other := host{h.Namespace, Legacy + NFT - v}
		loaded := other.open(t)
		loadExample(loaded)
		apply(t, loaded)
		before := other.state(t)
		table := h.open(t)
		loadExample(table)
		apply(t, table)
		if err := table.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, other.state(t)); diff != "" {
			t.Error(diff)
		}
		wantSilent(t, loaded)
	})
}

// TestRemovalBehindForeignRules: where another program has written to a table with nft, iptables cannot show it. All chains of ours go even so, also those of the
// other tables, and nothing of the other program.
func TestRemovalBehindForeignRules(t *testing.T) {
	h := newHost(t, NFT)
	h.others(t)
	theirs := func() string { return tablestest.CanonicalNFT(h.Run(t, "nft", "-s", "list", "ruleset")) }
	foreign := func(what string) {
		for _, family := range []string{"ip", "ip6"} {
			for line := range strings.Lines(what) {
				h.Feed(t, strings.ReplaceAll(line, "FAMILY", family), "nft", "-f", "-")
			}
		}
	}
	foreign("add chain FAMILY filter theirs\nadd rule FAMILY filter theirs meta mark set numgen inc mod 2\n")
	before := theirs()
	foreign("delete chain FAMILY filter theirs\n")
	table := h.open(t)
	loadExample(table)
	apply(t, table)
	foreign("add chain FAMILY filter theirs\nadd rule FAMILY filter theirs meta mark set numgen inc mod 2\n")
	other := h.open(t)
	if found, err := other.Exists(t.Context()); err != nil || !found {
		t.Errorf("exists: %v, %v", found, err)
	}
	if err := other.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if text := h.Run(t, "nft", "list", "ruleset"); strings.Contains(text, "flx-") {
		t.Errorf("left:\n%s", text)
	}
	for line := range strings.Lines(before) {
		if !strings.Contains(theirs(), line) {
			t.Errorf("missing: %s", line)
		}
	}
	if found, err := other.Exists(t.Context()); err != nil || found {
		t.Errorf("exists after the removal: %v, %v", found, err)
	}
}
