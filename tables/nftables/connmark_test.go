package nftables

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/tables"
)

// Marks of connections are listed by nft as a person would have written them.
func TestConnMark(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	table.UpdateChain(tables.Chain{Name: "marks", Rules: []tables.Rule{
		rule(tables.Return{}, "", tables.MatchConnMark{Value: 0x20000000, Mask: 0x20000000}),
		rule(tables.SetConnMark{Value: 0x20000000, Mask: 0x20000000}, "", tables.MatchConnOriginal{}),
		rule(tables.SetConnMark{Value: 7, Mask: ^uint32(0)}, "", tables.MatchConnMark{Value: 7, Mask: ^uint32(0)}),
		rule(tables.SetConnMark{Value: 0, Mask: 1}, ""),
	}})
	apply(t, table)
	listing := ns.list(t, "-s")
	for _, want := range []string{
		"ct mark & 0x20000000 == 0x20000000 counter return",
		"ct direction original counter ct mark set ct mark | 0x20000000",
		"ct mark 0x00000007 counter ct mark set 0x00000007",
		"counter ct mark set ct mark & 0xfffffffe",
	} {
		if !strings.Contains(listing, want) {
			t.Errorf("%q is not in\n%s", want, listing)
		}
	}
	wantSilent(t, table)
}
