package iptables

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// listening runs the table's Watch until the test ends, and returns its calls. The
// watch listens when it returns.
func listening(t testing.TB, table *Table) chan time.Time {
	t.Helper()
	calls := make(chan time.Time, 16)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	// Of a table that was applied, the first call tells that the watch listens.
	apply(t, table)
	go func() { done <- table.Watch(ctx, func() { calls <- time.Now() }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended: %v", err)
		}
	})
	heard(t, calls)
	apply(t, table)
	return calls
}

// heard waits for a call.
func heard(t testing.TB, calls chan time.Time) {
	t.Helper()
	select {
	case <-calls:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was heard")
	}
}

// noticed is how long a foreign change may go without notice.
const noticed = time.Second

// What others do to our chains is heard within a second, and repaired by the next
// Apply, without an Invalidate.
func TestWatch(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		tool, tool6 := "iptables-"+v.String(), "ip6tables-"+v.String()
		changes := map[string][]string{
			"filter flushed":     {tool, "-F"},
			"ours flushed":       {tool, "-F", "flx-forward"},
			"way in deleted":     {tool, "-D", "FORWARD", "1"},
			"accepts before":     {tool6, "-I", "FORWARD", "-j", "ACCEPT"},
			"a rule more":        {tool6, "-I", "flx-forward", "-j", "ACCEPT"},
			"table is replaced":  {"sh", "-c", tool + "-save -t filter | grep -v flx- | " + tool + "-restore"},
			"IPv6 alone flushed": {tool6, "-F"},
		}
		if v == NFT {
			changes["ruleset flushed"] = []string{"nft", "flush", "ruleset"}
			changes["rule replaced"] = []string{tool, "-R", "flx-forward", "1", "-j", "ACCEPT"}
		}
		for name, command := range changes {
			t.Run(name, func(t *testing.T) {
				h := newHost(t, v)
				table := h.open(t)
				loadExample(table)
				calls := listening(t, table)
				before := h.state(t)
				if r := apply(t, table); r.FullRead {
					t.Fatalf("a read for nothing: %+v", r)
				}
				h.Run(t, command...)
				start := time.Now()
				heard(t, calls)
				took := time.Since(start)
				t.Logf("heard after %s", took)
				if took > noticed {
					t.Errorf("heard after %s", took)
				}
				r := apply(t, table)
				if len(r.Repaired) == 0 {
					t.Errorf("nothing was repaired: %+v", r)
				}
				if diff := cmp.Diff(before, h.state(t)); name != "accepts before" && diff != "" {
					t.Errorf("after the repair (-before +after):\n%s", diff)
				}
				if targets := h.targets(t, model.IPv6, "FORWARD"); targets[0] != "flx-forward" {
					t.Errorf("FORWARD leads to %v", targets)
				}
				if r := apply(t, table); r.FullRead {
					t.Errorf("another read: %+v", r)
				}
			})
		}
	})
}

// Our own changes are not heard, nor those of others in chains of theirs under nft.
func TestOwnChangesAreNotHeard(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		h.others(t)
		table := h.open(t)
		loadExample(table)
		calls := listening(t, table)
		for i := range 20 {
			table.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{rule(tables.Drop{}, "new", tcpPort(uint16(i+1))...)}})
			if v == NFT {
				h.table(t, "filter", "-A KUBE-FORWARD -j RETURN")
			}
			if r := apply(t, table); r.FullRead || r.Messages == 0 {
				t.Errorf("%+v", r)
			}
		}
		// A change of others that is heard ends the wait for those that must not be.
		h.Run(t, "iptables-"+v.String(), "-F", "flx-forward")
		heard(t, calls)
		if r := apply(t, table); len(r.Repaired) != 1 {
			t.Errorf("repairs %+v", r.Repaired)
		}
		select {
		case <-calls:
			t.Error("heard more than once")
		default:
		}
	})
}

func tcpPort(port uint16) []tables.Match {
	return []tables.Match{proto(model.TCP), ports(port, port)}
}

// What others change while the table is written in other places is found too.
func TestWatchUnderChurn(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		table.UpdateChain(tables.Chain{
			Name: "forward", Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: -150},
			Rules: []tables.Rule{rule(tables.Jump{Chain: "pods"}, "")},
		})
		table.UpdateChain(tables.Chain{Name: "pods"})
		listening(t, table)
		for i := range 5 {
			table.UpdateChain(tables.Chain{Name: "pods", Rules: []tables.Rule{rule(tables.Drop{}, "new", tcpPort(uint16(i+1))...)}})
			// The change of others comes before a write of ours that it does not upset.
			h.Run(t, "iptables-"+v.String(), "-t", "mangle", "-D", "FORWARD", "1")
			var repaired int
			for deadline := time.Now().Add(noticed); repaired == 0 && time.Now().Before(deadline); {
				repaired = len(apply(t, table).Repaired)
			}
			if repaired == 0 {
				t.Errorf("try %d: not repaired within %s", i, noticed)
			}
		}
	})
}

// BenchmarkLook is a look of the legacy variant at tables of 11,000 rules; there are four
// a second.
func BenchmarkLook(b *testing.B) {
	h := newHost(b, Legacy)
	table := h.open(b)
	load(b, h, table, 1000)
	sizes, err := openSizes(table.options.NetNS, table.families)
	if err != nil {
		b.Fatal(err)
	}
	defer sizes.close()
	for b.Loop() {
		if _, err := sizes.read(); err != nil {
			b.Fatal(err)
		}
	}
}
