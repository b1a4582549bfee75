package nftables

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// stranger is a match that the driver does not know.
type stranger struct{ tables.Match }

// TestBadInputIsQuarantined: every case spoils the example. Apply must name object and reason, and
// quarantine that object alone: every chain that is not closed because of it keeps its rules.
func TestBadInputIsQuarantined(t *testing.T) {
	chainOf := func(rules ...tables.Rule) func(*Table) {
		return func(t *Table) { t.UpdateChain(tables.Chain{Name: "to-pods", Rules: rules}) }
	}
	accept := func(matches ...tables.Match) func(*Table) {
		return chainOf(rule(tables.Return{}, ""), rule(tables.Accept{}, "x/bad ingress[1]", matches...))
	}
	for _, c := range []struct {
		name   string
		spoil  func(*Table)
		want   []string
		closed string // the chains that are closed, or are not even there
	}{
		{"no match", accept(nil), []string{"chain to-pods", "rule 1", "unknown match"}, "to-pods"},
		{"unknown match", accept(stranger{proto(model.TCP)}), []string{"chain to-pods", "rule 1", "unknown match"}, "to-pods"},
		{"no action", chainOf(rule(nil, "x/bad")), []string{"chain to-pods", "rule 0", "no action"}, "to-pods"},
		{"set not wanted", accept(srcSet(model.IPv4, "anone-4")), []string{"chain to-pods", "rule 1", "x/bad ingress[1]", "set anone-4 is not wanted"}, "to-pods"},
		{"set is a map", accept(srcSet(model.IPv4, "to-pods-4")), []string{"rule 1", "set to-pods-4 is not wanted"}, "to-pods"},
		{"set of another family", accept(srcSet(model.IPv6, "aweb-4")), []string{"rule 1", "set aweb-4 is of family 4"}, "to-pods"},
		{"set of another kind", accept(srcSet(model.IPv4, "phttp-4")), []string{"rule 1", "set phttp-4 holds address-ports"}, "to-pods"},
		{"port set of another kind", accept(tables.MatchPortSet{Family: model.IPv4, Set: "aweb-4"}), []string{"rule 1", "set aweb-4 holds addresses"}, "to-pods"},
		{"two families", accept(srcSet(model.IPv4, "aweb-4"), prefix(tables.Source, "fd00::/64", false)), []string{"rule 1", "family 6 after a match of family 4"}, "to-pods"},
		{"no family", accept(srcSet(0, "aweb-4")), []string{"rule 1", "unknown family"}, "to-pods"},
		{"no side", accept(tables.MatchSet{Family: model.IPv4, Set: "aweb-4"}), []string{"rule 1", "unknown side"}, "to-pods"},
		{"host bits", accept(prefix(tables.Source, "10.0.0.1/8", false)), []string{"rule 1", "10.0.0.1/8"}, "to-pods"},
		{"ports without protocol", accept(ports(80, 80)), []string{"rule 1", "needs a match on tcp"}, "to-pods"},
		{"ports of icmp", accept(proto(model.ICMP), ports(80, 80)), []string{"rule 1", "needs a match on tcp"}, "to-pods"},
		{"empty range", accept(proto(model.TCP), ports(81, 80)), []string{"rule 1", "81-80"}, "to-pods"},
		{"any protocol", accept(proto(model.AnyProtocol)), []string{"rule 1", "any protocol"}, "to-pods"},
		{"long interface", accept(tables.MatchInterface{Side: tables.Source, Name: "a234567890123456"}), []string{"rule 1", "interface name"}, "to-pods"},
		{"no states", accept(tables.MatchConnState{}), []string{"rule 1", "connection states"}, "to-pods"},
		{"mark outside mask", accept(tables.MatchMark{Value: 3, Mask: 1}), []string{"rule 1", "does not fit"}, "to-pods"},
		{"goto nowhere", chainOf(rule(tables.Goto{Chain: "nowhere"}, "")), []string{"chain to-pods", "rule 0", "chain nowhere is not wanted"}, "to-pods"},
		{"jump to a base chain", chainOf(rule(tables.Jump{Chain: "forward"}, "")), []string{"rule 0", "chain forward is a base chain"}, "to-pods"},
		{"map not wanted", chainOf(rule(tables.Dispatch{Family: model.IPv4, Side: tables.Source, Map: "aweb-4"}, "")), []string{"rule 0", "map aweb-4 is not wanted"}, "to-pods"},
		{"map of another family", chainOf(rule(tables.Dispatch{Family: model.IPv6, Side: tables.Source, Map: "to-pods-4"}, "")), []string{"rule 0", "map to-pods-4 is of family 4"}, "to-pods"},
		{"long name", func(t *Table) { t.UpdateChain(tables.Chain{Name: strings.Repeat("x", 256)}) }, []string{"chain xxx", "too long"}, strings.Repeat("x", 256)},
		{"name with a blank", func(t *Table) { t.UpdateChain(tables.Chain{Name: "a b"}) }, []string{"chain a b", "' '"}, "a b"},
		{"chain in a map goes", func(t *Table) {
			t.RemoveChain("pods-in-x/base-1")
			t.RemoveVerdict("to-pods-6", addr("fd00::1"))
		}, []string{"map to-pods-4", "entry 10.0.0.1", "chain pods-in-x/base-1 is not wanted"}, ""},
		{"chain in use becomes a base chain", func(t *Table) {
			t.UpdateChain(tables.Chain{Name: "pin-x/base-1", Hook: forwardHook})
		}, []string{"chain pods-in-x/base-1", "chain pin-x/base-1 is a base chain"}, "pods-in-x/base-1"},
		{"set in use goes", func(t *Table) { t.RemoveSet("aweb-6") }, []string{"chain pin-x/base-1", "rule 1", "set aweb-6 is not wanted"}, "pin-x/base-1 pods-in-x/base-1"},
		{"set in use changes kind", func(t *Table) {
			t.CreateSet(ipsets.Set{Name: "aweb-6", Kind: model.AddressPorts, Family: model.IPv6})
		}, []string{"chain pin-x/base-1", "set aweb-6 holds address-ports"}, "pin-x/base-1 pods-in-x/base-1"},
		{"set of no kind", func(t *Table) { t.CreateSet(ipsets.Set{Name: "ax-4", Family: model.IPv4}) }, []string{"set ax-4", "unknown kind"}, ""},
		{"member of another family", func(t *Table) { t.AddMembers("aweb-4", membersOf("fd00::9")) }, []string{"set aweb-4", "fd00::9", "family 6"}, "pin-x/base-1 pods-in-x/base-1"},
		{"prefix among addresses", func(t *Table) { t.AddMembers("aweb-4", membersOf("10.0.0.0/8")) }, []string{"set aweb-4", "10.0.0.0/8"}, "pin-x/base-1 pods-in-x/base-1"},
		{"overlapping prefixes", func(t *Table) { t.AddMembers("nblock-4", membersOf("10.2.0.0/16")) }, []string{"set nblock-4", "10.2.0.0/16", "10.2.0.0/15"}, "pin-x/base-1 pods-in-x/base-1"},
		{"triple without protocol", func(t *Table) { t.AddMembers("phttp-4", membersOf("10.0.0.7")) }, []string{"set phttp-4", "protocol"}, "pin-x/base-1 pods-in-x/base-1"},
		{"members of nothing", func(t *Table) { t.AddMembers("anone-4", membersOf("10.0.0.7")) }, []string{"set anone-4", "not wanted"}, ""},
		{"verdict of nothing", func(t *Table) { t.SetVerdict("none", addr("10.0.0.7"), tables.Drop{}) }, []string{"none", "not wanted"}, ""},
		{"verdict to nowhere", func(t *Table) { t.SetVerdict("to-pods-4", addr("10.0.0.7"), tables.Goto{Chain: "nowhere"}) }, []string{"map to-pods-4", "10.0.0.7", "chain nowhere"}, ""},
		{"no verdict", func(t *Table) { t.SetVerdict("to-pods-4", addr("10.0.0.7"), nil) }, []string{"map to-pods-4", "needs a verdict"}, ""},
		{"no such verdict", func(t *Table) { t.SetVerdict("to-pods-4", addr("10.0.0.7"), tables.Masquerade{}) }, []string{"map to-pods-4", "masquerade"}, ""},
		{"invalid address", func(t *Table) { t.AddMembers("aweb-4", []model.Member{{}}) }, []string{"set aweb-4", "not a usable address"}, "pin-x/base-1 pods-in-x/base-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := newNamespace(t)
			table := ns.open(t)
			loadExample(table)
			apply(t, table)
			before := rulesByChain(t, table)
			c.spoil(table)
			for range 2 { // it stays refused
				r := apply(t, table)
				if len(r.Refused) != 1 {
					t.Fatalf("%+v", r)
				}
				refused := r.Refused[0]
				said := fmt.Sprintf("%s %s: %s: %s", refused.Object, refused.Name, refused.Rule, refused.Reason)
				for _, w := range c.want {
					if !strings.Contains(said, w) {
						t.Errorf("refusal %q does not say %q", said, w)
					}
				}
				if closed := strings.Join(refused.Closed, " "); closed != c.closed {
					t.Errorf("closed are %q, want %q", closed, c.closed)
				}
			}
			after := rulesByChain(t, table)
			for name, rules := range before {
				wanted := table.chains[name]
				switch now := after[name]; {
				case slices.Contains(strings.Fields(c.closed), name):
					if len(now) != 1 || !strings.HasPrefix(now[0], "drop refused: ") {
						t.Errorf("chain %s is not closed: %v", name, now)
					}
				case wanted != nil && wanted.desired != nil && wanted.desired.Hook == nil && !slices.Equal(now, rules):
					t.Errorf("chain %s has %v, had %v", name, now, rules)
				}
			}
			wantSilent(t, table)
		})
	}
}

// rulesByChain returns verdict and comment of each rule in the kernel.
func rulesByChain(t *testing.T, table *Table) map[string][]string {
	t.Helper()
	s, err := table.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, c := range s.Chains {
		out[c.Name] = []string{}
		for _, r := range c.Rules {
			out[c.Name] = append(out[c.Name], r.Verdict+" "+r.Comment)
		}
	}
	return out
}

// TestBadBaseChainChangesNothing: a base chain sees the whole host's traffic and cannot be closed. If it, or
// one of its references, is faulty, Apply returns an error and leaves the kernel alone.
func TestBadBaseChainChangesNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*Table)
		want  []string
	}{
		{"masquerade in filter", func(t *Table) {
			t.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{rule(tables.Masquerade{}, "")}})
		}, []string{"chain forward", "rule 0", "masquerade"}},
		{"nat at forward", func(t *Table) {
			t.UpdateChain(tables.Chain{Name: "dnat", Hook: &tables.Hook{Type: tables.HookNAT, Point: tables.HookForward}})
		}, []string{"chain dnat", "nat"}},
		{"unknown hook", func(t *Table) {
			t.UpdateChain(tables.Chain{Name: "in", Hook: &tables.Hook{Type: tables.HookFilter}})
		}, []string{"chain in", "unknown hook"}},
		{"chain in use goes", func(t *Table) { t.RemoveChain("to-pods") }, []string{"chain forward", "rule 1", "chain to-pods is not wanted"}},
		{"set of a base chain", func(t *Table) {
			t.AddMembers("aweb-4", membersOf("10.0.0.0/8"))
			t.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{rule(tables.Drop{}, "", srcSet(model.IPv4, "aweb-4"))}})
		}, []string{"base chain forward relies on set aweb-4", "10.0.0.0/8"}},
		{"chain of a base chain has no possible name", func(t *Table) {
			t.UpdateChain(tables.Chain{Name: "a b"})
			t.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{rule(tables.Jump{Chain: "a b"}, "")}})
		}, []string{"chain forward", "' '"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := newNamespace(t)
			table := ns.open(t)
			loadExample(table)
			apply(t, table)
			before := ns.list(t, "-a")
			c.spoil(table)
			for range 2 { // it stays refused
				r, err := table.Apply(t.Context())
				if err == nil {
					t.Fatalf("accepted: %+v", r)
				}
				var object *ObjectError
				if !errors.As(err, &object) || r.Messages != 0 {
					t.Errorf("error %v of type %T, %+v", err, err, r)
				}
				for _, w := range c.want {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("error %q does not say %q", err, w)
					}
				}
			}
			if diff := cmp.Diff(before, ns.list(t, "-a")); diff != "" {
				t.Errorf("the kernel was changed:\n%s", diff)
			}
		})
	}
}

// TestLoopIsCut: a loop of jumps, which the kernel finds only when base chains lead to it, is cut at its last
// jump. The chains that ask the cut one are closed; everything else is programmed.
func TestLoopIsCut(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	table.UpdateChain(tables.Chain{Name: "pods-in-x/base-1", Rules: []tables.Rule{rule(tables.Jump{Chain: "loop-a"}, "")}})
	table.UpdateChain(tables.Chain{Name: "loop-a", Rules: []tables.Rule{rule(tables.Jump{Chain: "loop-b"}, "there")}})
	table.UpdateChain(tables.Chain{Name: "loop-b", Rules: []tables.Rule{rule(tables.Jump{Chain: "loop-a"}, "back")}})
	r := apply(t, table)
	if len(r.Refused) != 1 || r.Refused[0].Name != "loop-b" || !slices.Equal(r.Refused[0].Closed, []string{"loop-a", "loop-b", "pods-in-x/base-1"}) {
		t.Errorf("%+v", r)
	}
	for _, name := range r.Refused[0].Closed {
		if got := rulesByChain(t, table)[name]; len(got) != 1 || !strings.HasPrefix(got[0], "drop refused: ") {
			t.Errorf("%s has %v", name, got)
		}
	}
	wantChain(t, table, *table.chains["to-pods"].desired)
	wantSilent(t, table)

	table.UpdateChain(tables.Chain{Name: "loop-b"})
	if r := apply(t, table); len(r.Refused) != 0 || r.RulesAdded != 2 || r.RulesDeleted != 3 {
		t.Errorf("after the loop is gone: %+v", r)
	}
	wantSilent(t, table)
}

// A member that is not there any more is named, among many other messages.
func TestKernelErrorNamesTheMember(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	ns.nft(t, "delete element inet felixlike aweb-4 { 10.0.0.2 }")
	for i := range 300 {
		table.AddMembers("aweb-6", []model.Member{model.AddressMember(nth("fd00:1::", i))})
	}
	table.RemoveMembers("aweb-4", membersOf("10.0.0.2"))
	p := table.planner.plan(true)
	err := table.conn.Commit(p.batches(table.limit)[0])
	var object *ObjectError
	if !errors.As(err, &object) || object.Object != "set" || object.Name != "aweb-4" || object.Rule != "member 10.0.0.2" {
		t.Errorf("error %v", err)
	}
	// The refusal comes from an outdated known state: Apply reads again.
	if r := apply(t, table); !r.FullRead || len(r.Repaired) != 0 || len(r.Refused) != 0 {
		t.Errorf("%+v", r)
	}
	wantSilent(t, table)
}
