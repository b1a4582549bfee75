package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// stranger is a match that the driver does not know.
type stranger struct{ tables.Match }

// refused lists the quarantined objects, as chain, rule and reason.
func refused(r tables.Result) []string {
	var out []string
	for _, f := range r.Refused {
		out = append(out, strings.TrimSpace(f.Name+": "+f.Rule+": "+f.Reason))
	}
	return out
}

// A chain with an error of its own is closed and named in the result; all others are
// programmed. Once it is correct, it gets its former content again.
func TestWrongChainStandsClosed(t *testing.T) {
	chainOf := func(rules ...tables.Rule) func(*Table) {
		return func(t *Table) { t.UpdateChain(tables.Chain{Name: "to-pods", Rules: rules}) }
	}
	accept := func(matches ...tables.Match) func(*Table) {
		return chainOf(rule(tables.Return{}, ""), rule(tables.Accept{}, "x/bad ingress[1]", matches...))
	}
	for _, c := range []struct {
		name  string
		spoil func(*Table)
		chain string
		want  []string
	}{
		{"no match", accept(nil), "to-pods", []string{"rule 1", "unknown match"}},
		{"unknown match", accept(stranger{proto(model.TCP)}), "to-pods", []string{"rule 1", "x/bad ingress[1]", "unknown match"}},
		{"no action", chainOf(rule(nil, "x/bad")), "to-pods", []string{"rule 0", "no action"}},
		{"dispatch", chainOf(rule(tables.Dispatch{Family: model.IPv4, Side: tables.Source, Map: "from-pods-4"}, "")), "to-pods", []string{"rule 0", "iptables has no verdict maps"}},
		{"two sources", accept(prefix(tables.Source, "10.0.0.0/8", false), prefix(tables.Source, "10.0.0.0/9", true)), "to-pods", []string{"rule 1", "one match on the prefix of the src"}},
		{"two protocols", accept(proto(model.TCP), proto(model.UDP)), "to-pods", []string{"rule 1", "one match on the protocol"}},
		{"two interfaces", accept(device(tables.Source, "eth0", true), device(tables.Source, "eth1", true)), "to-pods", []string{"rule 1", "one match on the interface"}},
		{"two port ranges", accept(proto(model.TCP), ports(1, 2), ports(2, 3)), "to-pods", []string{"rule 1", "one match on destination ports"}},
		{"interface with a plus", accept(device(tables.Source, "eth+", false)), "to-pods", []string{"rule 1", "'+'"}},
		{"interface with a blank", accept(device(tables.Source, "eth 0", false)), "to-pods", []string{"rule 1", "' '"}},
		{"set with a blank", accept(srcSet(model.IPv4, "a -j ACCEPT")), "to-pods", []string{"rule 1", "set a -j ACCEPT", "' '"}},
		{"masquerade", chainOf(rule(tables.Masquerade{}, "")), "to-pods", []string{"rule 0", "masquerade"}},
		{"source kept in filter", chainOf(rule(tables.KeepSource{Family: model.IPv4}, "")), "to-pods", []string{"rule 0", "only in a base chain of the nat type"}},
		{"mark and return", chainOf(rule(tables.SetMarkAndReturn{Value: 1, Mask: 1}, "")), "to-pods", []string{"rule 0", "only in the nftables driver"}},
		{"own addresses", accept(tables.MatchLocal{Side: tables.Source}), "to-pods", []string{"rule 1", `only the nftables driver matches "src local"`}},
		{"forwarded", accept(tables.MatchForwarded{}), "to-pods", []string{"rule 1", "only the nftables driver"}},
		{"source before rewriting", accept(tables.MatchConnSource{Prefix: netip.MustParsePrefix("10.0.0.0/8")}), "to-pods", []string{"rule 1", "only the nftables driver"}},
		{"rewritten destination", accept(tables.MatchConnDNAT{}), "to-pods", []string{"rule 1", "only the nftables driver"}},
		{"hop limit", accept(tables.MatchHopLimit{Hops: 255}), "to-pods", []string{"rule 1", "only the nftables driver"}},
		{"reset", chainOf(rule(tables.Drop{}, "", proto(model.TCP), tables.MatchReset{})), "to-pods", []string{"rule 0", "only the nftables driver"}},
		{"EtherType", accept(tables.MatchEtherType{Type: 0x806}), "to-pods", []string{"rule 1", "only the nftables driver"}},
		{"loop", accept(tables.MatchLoop{Family: model.IPv4, Set: "hairpin-4"}), "to-pods", []string{"rule 1", "only the nftables driver"}},
		{"goto nowhere", chainOf(rule(tables.Goto{Chain: "nowhere"}, "")), "to-pods", []string{"rule 0", "chain nowhere is not wanted"}},
		{"jump to a base chain", chainOf(rule(tables.Jump{Chain: "forward"}, "")), "to-pods", []string{"rule 0", "chain forward is a base chain"}},
		{"goto a long name", chainOf(rule(tables.Goto{Chain: strings.Repeat("x", MaxName+1)}, "")), "to-pods", []string{"rule 0", "too long"}},
		{"chain in use goes", func(t *Table) { t.RemoveChain("pin-x/base-1") }, "pods-in-x/base-1", []string{"rule 3", "chain pin-x/base-1 is not wanted"}},
		{"chain in use becomes a base chain", func(t *Table) {
			c := *t.chains["pin-x/base-1"].desired
			c.Hook = &tablestest.Forward
			t.UpdateChain(c)
		}, "pods-in-x/base-1", []string{"rule 3", "chain pin-x/base-1 is a base chain"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, NFT)
			table := h.open(t)
			loadExample(table)
			apply(t, table)
			before := h.state(t)
			c.spoil(table)
			other := *table.chains["prerouting"].desired
			other.Rules = append([]tables.Rule{}, rule(tables.Drop{}, "another", device(tables.Source, "eth0", false)))
			table.UpdateChain(other)
			r := apply(t, table)
			if len(r.Refused) != 1 || r.Refused[0].Name != c.chain || r.Refused[0].Object != "chain" || r.Refused[0].Attempts != 1 || len(r.Refused[0].Closed) != 1 {
				t.Fatalf("%+v", r)
			}
			for _, w := range c.want {
				if text := refused(r)[0]; !strings.Contains(text, w) {
					t.Errorf("%q does not say %q", text, w)
				}
			}
			for _, f := range model.Families() {
				if diff := cmp.Diff([]string{"DROP"}, h.targets(t, f, "flx-"+c.chain)); diff != "" {
					t.Error(diff)
				}
			}
			if !strings.Contains(h.state(t), "-m comment --comment another -j DROP") {
				t.Error("the other chain is not programmed")
			}
			wantSilent(t, table)
			table.Invalidate()
			wantSilent(t, table)
			loadExample(table)
			if r := apply(t, table); len(r.Refused) != 0 {
				t.Errorf("%+v", r)
			}
			if diff := cmp.Diff(before, h.state(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The kernel refuses the name of the chain, so the chain does not exist and cannot be
// closed. The chains that lead to it are closed instead.
func TestLongName(t *testing.T) {
	h := newHost(t, NFT)
	table := h.open(t)
	loadExample(table)
	long := strings.Repeat("x", MaxName+1)
	table.UpdateChain(tables.Chain{Name: long})
	table.UpdateChain(tables.Chain{Name: "to-pods", Rules: []tables.Rule{rule(tables.Goto{Chain: long}, "")}})
	r := apply(t, table)
	want := []string{
		"to-pods: rule 0 (goto " + long + "): chain " + long + ": the name is too long: 25 characters of at most 24",
		long + ": : the name is too long: 25 characters of at most 24",
	}
	if diff := cmp.Diff(want, refused(r)); diff != "" {
		t.Error(diff)
	}
	wantSilent(t, table)
	table.RemoveChain(long)
	loadExample(table)
	if r := apply(t, table); len(r.Refused) != 0 {
		t.Errorf("%+v", r)
	}
}

// A base chain can stand neither closed nor open: a wrong base chain is an error, and
// nothing changes.
func TestWrongBaseChainIsAnError(t *testing.T) {
	h := newHost(t, NFT)
	table := h.open(t)
	loadExample(table)
	apply(t, table)
	before := h.state(t)
	for _, c := range []struct {
		chain tables.Chain
		want  []string
	}{
		{
			tables.Chain{Name: "forward", Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: 1}},
			[]string{"chain forward", "no table", "priority 1"},
		},
		{
			tables.Chain{Name: "forward", Hook: &tablestest.Forward, Rules: []tables.Rule{rule(tables.Jump{Chain: "nowhere"}, "to pods")}},
			[]string{"chain forward", "rule 0", "to pods", "chain nowhere is not wanted"},
		},
	} {
		loadExample(table)
		table.UpdateChain(c.chain)
		table.UpdateChain(tables.Chain{Name: "to-pods"})
		for range 2 {
			r, err := table.Apply(t.Context())
			var object *tables.ObjectError
			if !errors.As(err, &object) || object.Name != "forward" || r.Messages != 0 {
				t.Errorf("%v, %+v", err, r)
			}
			for _, w := range c.want {
				if !strings.Contains(fmt.Sprint(err), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		}
		if diff := cmp.Diff(before, h.state(t)); diff != "" {
			t.Error(diff)
		}
	}
	loadExample(table)
	wantSilent(t, table)
}

// If the tool refuses a rule of a base chain, the error names the rule.
func TestMissingSetOfABaseChain(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		loadExample(table)
		apply(t, table)
		before := h.state(t)
		forward := *table.chains["forward"].desired
		forward.Rules = append(forward.Rules[:2:2], rule(tables.Drop{}, "forged", srcSet(model.IPv4, "alate-4")))
		table.UpdateChain(forward)
		r, err := table.Apply(t.Context())
		var object *tables.ObjectError
		if !errors.As(err, &object) || object.Name != "forward" || !strings.HasPrefix(object.Rule, "rule 2 (") || !strings.Contains(err.Error(), "Set flx-alate-4 doesn't exist.") {
			t.Errorf("%v, %+v", err, r)
		}
		if diff := cmp.Diff(before, h.state(t)); diff != "" {
			t.Error(diff)
		}
		h.Run(t, "ipset", "create", "flx-alate-4", "hash:ip")
		apply(t, table)
		table.Invalidate()
		wantSilent(t, table)
	})
}

// clock is a time that the test sets.
func clock(table *Table) *time.Time {
	now := time.Now()
	table.quarantine.now = func() time.Time { return now }
	return &now
}

// What the tool names is quarantined at once, tried again when its time has come,
// and at once when it changes.
func TestMissingSet(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		now := clock(table)
		loadExample(table)
		bad := *table.chains["pin-x/base-1"].desired
		bad.Rules = append([]tables.Rule{rule(tables.Accept{}, "x/base ingress[9]", srcSet(model.IPv4, "alate-4"))}, bad.Rules...)
		table.UpdateChain(bad)
		r := apply(t, table)
		if len(r.Refused) != 1 || !strings.Contains(refused(r)[0], "pin-x/base-1: rule 0 (ip4 src @alate-4 accept, x/base ingress[9]): Set flx-alate-4 doesn't exist.") {
			t.Fatalf("%q", refused(r))
		}
		first := r.Refused[0]
		if first.Attempts != 1 || !first.NextTry.Equal(now.Add(isolate.FirstWait)) || !first.Since.Equal(*now) {
			t.Errorf("%+v", first)
		}
		for _, f := range model.Families() {
			if diff := cmp.Diff([]string{"DROP"}, h.targets(t, f, "flx-pin-x/base-1")); diff != "" {
				t.Error(diff)
			}
		}
		wantSilent(t, table)

		// In vain.
		*now = now.Add(isolate.FirstWait)
		r = apply(t, table)
		if len(r.Refused) != 1 || r.Refused[0].Attempts != 2 || !r.Refused[0].Since.Equal(first.Since) || !r.Refused[0].NextTry.Equal(now.Add(2*isolate.FirstWait)) {
			t.Errorf("%+v", r)
		}
		wantSilent(t, table)

		// Another text, as bad.
		bad.Rules = append([]tables.Rule{rule(tables.Accept{}, "renamed", srcSet(model.IPv4, "alate-4"))}, bad.Rules[1:]...)
		table.UpdateChain(bad)
		r = apply(t, table)
		if len(r.Refused) != 1 || r.Refused[0].Attempts != 1 || !strings.Contains(r.Refused[0].Rule, "renamed") {
			t.Errorf("%+v", r)
		}

		// The set comes.
		h.Run(t, "ipset", "create", "flx-alate-4", "hash:ip")
		wantSilent(t, table)
		*now = now.Add(isolate.FirstWait)
		if r := apply(t, table); len(r.Refused) != 0 || r.RulesAdded == 0 {
			t.Errorf("%+v", r)
		}
		if n := len(h.targets(t, model.IPv4, "flx-pin-x/base-1")); n != 4 {
			t.Errorf("%d rules", n)
		}
		wantSilent(t, table)
		table.Invalidate()
		wantSilent(t, table)
	})
}

// Chains that name a quarantined set are closed, and listed with the set.
func TestQuarantineSets(t *testing.T) {
	h := newHost(t, NFT)
	table := h.open(t)
	loadExample(table)
	apply(t, table)
	before := h.state(t)
	bad := []tables.Refusal{
		{Object: "set", Name: "aweb-4", Rule: "member 10.0.0.1", Reason: "hash is full", Attempts: 3},
		{Object: "set", Name: "unused-4", Reason: "no memory"},
	}
	table.QuarantineSets(bad)
	want := []tables.Refusal{bad[0], bad[1]}
	want[0].Closed, want[0].ClosedOf = []string{"pin-x/base-1", "pods-in-x/base-1"}, []tables.Origin{nil, nil}
	for range 2 {
		if diff := cmp.Diff(want, apply(t, table).Refused); diff != "" {
			t.Error(diff)
		}
		table.QuarantineSets(bad)
	}
	for _, f := range model.Families() {
		if diff := cmp.Diff([]string{"DROP"}, h.targets(t, f, "flx-pin-x/base-1")); diff != "" {
			t.Error(diff)
		}
	}
	wantSilent(t, table)
	table.QuarantineSets(bad[1:])
	if r := apply(t, table); len(r.Refused) != 1 || len(r.Refused[0].Closed) != 0 {
		t.Errorf("%+v", r)
	}
	if diff := cmp.Diff(before, h.state(t)); diff != "" {
		t.Error(diff)
	}
	table.QuarantineSets(nil)
	if r := apply(t, table); len(r.Refused) != 0 || r.Messages != 0 {
		t.Errorf("%+v", r)
	}
}
