package backend

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// A table that is not needed is removed at once. Then the kernel is asked about it only after an Invalidate, as each resync and each notice of a change make
// one: each cycle of the agent runs this.
func TestRemover(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	r := &remover{table: nftables.New(nftables.Options{Table: nftables.HostsTable, NetNS: ns.FD})}
	add := func() { ns.Run(t, "nft", "add", "table", "inet", nftables.HostsTable) }
	apply := func(when string, writes int, there bool) {
		t.Helper()
		did, err := r.apply(t.Context())
		if err != nil || did.Writes != writes || strings.Contains(ns.Run(t, "nft", "list", "tables"), nftables.HostsTable) != there {
			t.Errorf("%s: %d writes, %v; wanted %d, and a table: %v", when, did.Writes, err, writes, there)
		}
	}
	add()
	apply("the table of an agent before", 1, false)
	apply("nothing is there", 0, false)
	add()
	apply("nobody has said that it is there again", 0, true)
	r.invalidate()
	apply("after a notice", 1, false)
}
