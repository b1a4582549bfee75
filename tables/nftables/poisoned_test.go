package nftables

import (
	"net/netip"
	"testing"
	"time"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// poison makes a remnant of an earlier version: an interval set that takes too long to
// read, and a rule that names it.
func poison(t *testing.T, ns namespace, members int) {
	t.Helper()
	old := ns.open(t)
	loadExample(old)
	old.CreateSet(ipsets.Set{Name: "nhuge-4", Kind: model.Networks, Family: model.IPv4})
	var all []model.Member
	a := netip.MustParseAddr("11.0.0.0")
	for range members {
		all = append(all, model.AddressMember(a))
		a = a.Next().Next()
	}
	old.AddMembers("nhuge-4", all)
	apply(t, old)
}

// A node with a set that cannot be read in time recovers by itself, after a restart at
// once. The driver does not read an unwanted set. If the set is wanted, the driver
// rebuilds the table behind the guard.
func TestPoisonedNode(t *testing.T) {
	ns := newNamespace(t)
	poison(t, ns, 120_000)
	t.Run("not wanted", func(t *testing.T) {
		table := ns.open(t)
		loadExample(table)
		began := time.Now()
		if r := apply(t, table); r.RulesAdded > 0 {
			t.Errorf("%+v", r)
		}
		t.Logf("recovered after %s", time.Since(began))
		if state, err := table.conn.Read(table.options.Table); err != nil || state.Sets["nhuge-4"] != nil {
			t.Errorf("the set is still there: %v", err)
		}
		table.Invalidate()
		wantSilent(t, table)
	})
	poison(t, ns, 120_000)
	t.Run("wanted", func(t *testing.T) {
		table := ns.open(t)
		loadExample(table)
		table.CreateSet(ipsets.Set{Name: "nhuge-4", Kind: model.Networks, Family: model.IPv4})
		table.AddMembers("nhuge-4", membersOf("11.0.0.0/8"))
		began := time.Now()
		apply(t, table)
		t.Logf("recovered after %s", time.Since(began))
		table.Invalidate()
		wantSilent(t, table)
	})
}

// A set that is as wanted is not rebuilt because a busy machine is slow to read it. A set
// with foreign elements is, where reading takes longer than it may.
func TestSlowReadIsNoPoison(t *testing.T) {
	ns := newNamespace(t)
	poison(t, ns, 5_000)
	table := ns.open(t)
	loadExample(table)
	table.CreateSet(ipsets.Set{Name: "nhuge-4", Kind: model.Networks, Family: model.IPv4})
	var all []model.Member
	a := netip.MustParseAddr("11.0.0.0")
	for range 5_000 {
		all = append(all, model.AddressMember(a))
		a = a.Next().Next()
	}
	table.AddMembers("nhuge-4", all)
	apply(t, table)
	table.conn.Patience = -time.Hour
	table.Invalidate()
	wantSilent(t, table)
	table.RemoveMembers("nhuge-4", all[100:])
	apply(t, table)
	poison(t, ns, 5_000)
	table.Invalidate()
	if r := apply(t, table); r.RulesAdded == 0 {
		t.Errorf("the table is not rebuilt: %+v", r)
	}
	table.Invalidate()
	wantSilent(t, table)
}
