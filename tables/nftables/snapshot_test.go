package nftables

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// TestMissing: a kernel without nf_tables is none of the other reasons why a table cannot be read.
func TestMissing(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{context.Canceled, false},
		{unix.ENOBUFS, false},
		{unix.EPERM, false},
		{fmt.Errorf("read table: %w", unix.EINVAL), true},
		{fmt.Errorf("connect: %w", &netlink.OpError{Op: "dial", Err: unix.EPROTONOSUPPORT}), true},
	} {
		if got := Missing(test.err); got != test.want {
			t.Errorf("%v: %v", test.err, got)
		}
	}
}

func TestSnapshot(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	ns.nft(t, `add rule inet felixlike forward udp dport 53 accept comment "by hand"
		add set inet felixlike odd { type ether_addr; }`)
	s, err := table.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	forward := s.Chain("forward")
	for i := range forward.Rules {
		forward.Rules[i].Handle = 0
	}
	hash := func(i int) string { return table.chains["forward"].hashes[i] }
	want := &ChainSnapshot{Name: "forward", Hook: "filter hook forward priority 0", Rules: []RuleSnapshot{
		{Hash: hash(0), Comment: "known connections", Verdict: "accept"},
		{Hash: hash(1), Comment: "to the bridge", Verdict: "goto to-pods"},
		{Hash: hash(2), Verdict: "drop"},
		{Comment: "by hand", Verdict: "accept"},
	}}
	if diff := cmp.Diff(want, forward); diff != "" {
		t.Error(diff)
	}
	if c := s.Chain("to-outside"); c == nil || c.Hook != "nat hook postrouting priority 100" || c.Rules[0].Verdict != "" {
		t.Errorf("%+v", c)
	}
	if c := s.Chain("none"); c != nil {
		t.Errorf("%+v", c)
	}
	wantSets := []SetSnapshot{
		{"aweb-4", "addresses", "4", 2},
		{"aweb-6", "addresses", "6", 1},
		{"nblock-4", "networks", "4", 5},
		{"nblock-6", "networks", "6", 4},
		{"odd", "", "", 0},
		{"phttp-4", "address-ports", "4", 2},
		{"phttp-6", "address-ports", "6", 1},
	}
	if diff := cmp.Diff(wantSets, s.Sets); diff != "" {
		t.Error(diff)
	}
	wantMaps := []MapSnapshot{
		{"to-pods-4", "4", []MapEntry{{"10.0.0.1", "goto pods-in-x/base-1"}, {"10.0.0.2", "accept"}, {"10.0.0.3", "drop"}}},
		{"to-pods-6", "6", []MapEntry{{"fd00::1", "jump pods-in-x/base-1"}}},
	}
	if diff := cmp.Diff(wantMaps, s.Maps); diff != "" {
		t.Error(diff)
	}
}

// Counters count packets, and go on counting when rules beside them change.
func TestCountersSurviveEdits(t *testing.T) {
	p := newPath(t)
	table := p.router.open(t)
	chain := tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{
		rule(tables.Accept{}, "sentinel", proto(model.UDP), ports(sentinel, sentinel)),
		rule(tables.Accept{}, "web", proto(model.TCP), ports(80, 80)),
		rule(tables.Drop{}, "rest", proto(model.TCP)),
	}}
	counted := func(want ...uint64) {
		t.Helper()
		s, err := table.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, r := range s.Chain("forward").Rules {
			if r.Comment != "sentinel" {
				got = append(got, r.Packets, r.Bytes)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("packets and bytes: %s", diff)
		}
	}
	table.UpdateChain(chain)
	apply(t, table)
	wantPackets(t, p, []packetCase{
		{model.TCP, "10.1.0.1", "10.2.0.1", 80, true},
		{model.TCP, "10.1.0.1", "10.2.0.1", 80, true},
		{model.TCP, "10.1.0.1", "10.2.0.1", 81, false},
	})
	const size = 20 + probeSize
	counted(2, 2*size, 1, size)

	edited := chain
	edited.Rules = []tables.Rule{chain.Rules[0], rule(tables.Accept{}, "new", proto(model.TCP), ports(81, 81)), chain.Rules[1], chain.Rules[2]}
	table.UpdateChain(edited)
	apply(t, table)
	wantPackets(t, p, []packetCase{
		{model.TCP, "10.1.0.1", "10.2.0.1", 80, true},
		{model.TCP, "10.1.0.1", "10.2.0.1", 81, true},
		{model.TCP, "10.1.0.1", "10.2.0.1", 82, false},
	})
	counted(1, size, 3, 3*size, 2, 2*size)
}

// Elements that we could not have written make the set be written anew.
func TestForeignElementsAreRepaired(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	before := ns.list(t)
	ns.nft(t, `add element inet felixlike nblock-4 { 11.0.0.1-11.0.0.9 }
		add element inet felixlike nblock-6 { 3000::/20 }
		delete element inet felixlike nblock-6 { fd00::5 }
		add element inet felixlike aweb-4 { 10.0.0.7 }
		delete element inet felixlike phttp-4 { 10.0.0.1 . tcp . 80 }
		delete element inet felixlike to-pods-4 { 10.0.0.2 }
		add element inet felixlike to-pods-4 { 10.0.0.2 : jump pin-x/base-1, 10.0.0.5 : continue }`)
	table.Invalidate()
	if r := apply(t, table); r.RulesAdded+r.RulesDeleted != 0 || r.Messages == 0 {
		t.Errorf("%+v", r)
	}
	if after := ns.list(t); after != before {
		t.Errorf("not repaired (-want +got):\n%s", cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")))
	}
	table.Invalidate()
	wantSilent(t, table)
}
