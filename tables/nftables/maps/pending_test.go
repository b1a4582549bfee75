package maps_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/maps"
	"github.com/felixlike/felixlike/test/tablestest"
)

// TestPendingIsNotForeign: a full read while own changes are not in the kernel yet, after a refused transaction or at a resync, does
// not take them for changes of another program, and finds those of other programs beside them, once.
func TestPendingIsNotForeign(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	table := maps.New(maps.Options{Table: "flx", NetNS: ns.FD})
	t.Cleanup(func() { _ = table.Close() })
	addresses := func(name string) tables.LargeSet {
		return tables.LargeSet{Name: name, Family: model.IPv4, Key: []tables.Part{tables.AddressPart}}
	}
	key := func(a string) string { return string(tables.AppendAddress(nil, netip.MustParseAddr(a))) }
	number := func(n uint32) string { return string(tables.AppendNumber(nil, n)) }
	chain := func(name, comment string) tables.Chain {
		return tables.Chain{Name: name, Rules: []tables.Rule{{Action: tables.Drop{}, Comment: comment}}, Origin: tables.OfEveryPod{}}
	}
	apply := func(when string, refused bool, want ...string) {
		t.Helper()
		result, err := table.Apply(t.Context())
		if (err != nil) != refused {
			t.Fatalf("%s: %v", when, err)
		}
		var got []string
		for _, r := range result.Repaired {
			got = append(got, r.Object+" "+r.Name+": "+r.What)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: repaired (-want +got):\n%s", when, d)
		}
	}
	verdicts := tables.LargeSet{Name: "verdicts", Family: model.IPv4, Key: []tables.Part{tables.NumberPart}, Verdicts: true}
	for _, s := range []tables.LargeSet{addresses("kept"), addresses("old"), verdicts} {
		table.UpdateSet(s)
	}
	table.UpdateChain(chain("changes", "before"))
	table.UpdateChain(chain("goes", "before"))
	table.Put("kept", key("10.0.0.1"), "")
	table.Put("kept", key("10.0.0.2"), "")
	apply("at first", false)

	change := func(round string) {
		table.Put("kept", key("10.0.1."+round), "")
		table.UpdateChain(chain("changes", round))
		table.UpdateChain(chain("comes"+round, round))
		table.UpdateSet(addresses("new" + round))
		table.Put("new"+round, key("10.0.0.9"), "")
	}
	change("1")
	table.Remove("kept", key("10.0.0.1"))
	table.RemoveChain("goes")
	table.RemoveSet("old")
	table.Invalidate()
	apply("a resync with own changes", false)

	change("2")
	table.RemoveChain("comes1")
	table.RemoveSet("new1")
	table.Put("verdicts", number(1), tables.GotoValue+"nowhere")
	apply("a refused transaction", true)
	apply("refused again", true)
	ns.Run(t, "nft", "add", "chain", "inet", "flx", "stranger")
	ns.Run(t, "nft", "delete", "element", "inet", "flx", "kept", "{ 10.0.0.2 }")
	apply("refused with a foreign change", true, "chain stranger: foreign", "set kept: elements changed")
	apply("refused with the foreign change", true)
	table.Remove("verdicts", number(1))
	apply("what is valid again", false)
	table.Invalidate()
	apply("a resync", false)

	change("3")
	ns.Run(t, "nft", "delete", "table", "inet", "flx")
	table.Put("verdicts", number(1), tables.GotoValue+"nowhere")
	apply("refused without the table", true, "table flx: deleted")
	apply("refused without the table again", true)
	table.Remove("verdicts", number(1))
	apply("with the table again", false)
	ns.Run(t, "nft", "flush", "chain", "inet", "flx", "comes3")
	table.Invalidate()
	apply("a foreign change", false, "chain comes3: changed")
}
