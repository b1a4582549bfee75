package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/stopwatch"
	"github.com/felixlike/felixlike/test/tablestest"
)

// listening runs the table's Watch until the test ends, and returns its calls. The
// watch listens when it returns.
func listening(t testing.TB, table *Table) chan time.Time {
	t.Helper()
	calls := make(chan time.Time, 16)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	// Of a table that was applied, the first call shows that the watch listens.
	apply(t, table)
	go func() { done <- table.Watch(ctx, func() { calls <- time.Now() }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended: %v", err)
		}
	})
	notified(t, calls)
	apply(t, table)
	return calls
}

// notified waits for a call.
func notified(t testing.TB, calls chan time.Time) {
	t.Helper()
	select {
	case <-calls:
	case <-time.After(10 * time.Second):
		t.Fatal("no notification")
	}
}

// noticed is how long a foreign change may go without notice.
const noticed = time.Second

// The watch notices foreign changes of our chains within a second, and the next Apply
// repairs them without an Invalidate.
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
				watch := stopwatch.Start(t)
				h.Run(t, command...)
				notified(t, calls)
				took := watch.Lap(t)
				t.Logf("notified after %s", took)
				if took.Net() > noticed {
					t.Errorf("notified after %s", took)
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

// Our own changes are not notified, nor those of others in chains of theirs under nft.
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
		// A change of others that is notified ends the wait for those that must not be.
		h.Run(t, "iptables-"+v.String(), "-F", "flx-forward")
		notified(t, calls)
		if r := apply(t, table); len(r.Repaired) != 1 {
			t.Errorf("repairs %+v", r.Repaired)
		}
		select {
		case <-calls:
			t.Error("notified more than once")
		default:
		}
	})
}

func tcpPort(port uint16) []tables.Match {
	return []tables.Match{proto(model.TCP), ports(port, port)}
}

// loadMangle sets a chain that is entered in a table that proxies do not change.
func loadMangle(table *Table) {
	table.UpdateChain(tables.Chain{
		Name: "forward", Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: -150},
		Rules: []tables.Rule{rule(tables.Jump{Chain: "pods"}, "")},
	})
	table.UpdateChain(tables.Chain{Name: "pods"})
}

// The watch also finds foreign changes while Apply writes the table in other places.
func TestWatchUnderChurn(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		loadMangle(table)
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

// The watch finds foreign changes while the legacy variant's tables are read.
func TestWatchDuringRead(t *testing.T) {
	h := newHost(t, Legacy)
	table := h.open(t)
	loadMangle(table)
	calls := listening(t, table)
	// The program deletes our rule when it has read it.
	once, script := filepath.Join(t.TempDir(), "once"), filepath.Join(t.TempDir(), "save")
	text := fmt.Sprintf("#!/bin/sh\n%s \"$@\" || exit\nif mkdir %s 2>/dev/null; then iptables-legacy -w -t mangle -D FORWARD 1; fi\n",
		table.tools.save[model.IPv4], once)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	table.tools.save[model.IPv4] = script
	table.Invalidate()
	apply(t, table)
	notified(t, calls)
	if r := apply(t, table); len(r.Repaired) != 1 {
		t.Errorf("repairs %+v", r.Repaired)
	}
	if r := apply(t, table); r.FullRead {
		t.Errorf("another read: %+v", r)
	}
}

// Where the kernel does not report sizes any more, the watch ends with an error instead of
// asking for reads that find nothing.
func TestWatchTellsThatItCannotSee(t *testing.T) {
	h := newHost(t, Legacy)
	table := h.open(t)
	loadExample(table)
	apply(t, table)
	calls, done := make(chan struct{}, 1024), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() { done <- table.Watch(ctx, func() { calls <- struct{}{} }) }()
	<-calls
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	table.watcher.mu.Lock()
	for _, fd := range table.watcher.sizes.sockets {
		err = errors.Join(err, unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC))
	}
	table.watcher.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	apply(t, table)
	if err := <-done; !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("watch ended: %v, want %v", err, unix.ENOTSOCK)
	}
}

// TestAbsentTableHasNoSize: a table that the kernel does not have is no change when it is
// no longer asked for.
func TestAbsentTableHasNoSize(t *testing.T) {
	ns := tablestest.NewNamespace(t)
	s, err := openSizes(ns.FD, []model.Family{model.IPv4})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if i, code := sizeOf(s.sockets[model.IPv4], unix.SOL_IP, "nosuch"); code != unix.ENOENT || i != (info{}) {
		t.Errorf("%v: %+v", code, i)
	}
	if i, code := sizeOf(s.sockets[model.IPv4], unix.SOL_IP, "filter"); code != 0 || i == (info{}) {
		t.Errorf("filter: %v: %+v", code, i)
	}
}

// A program that undoes every repair does not cost one read after the other.
func TestFightIsSlow(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		loadMangle(table)
		calls := listening(t, table)
		const fight = 4 * time.Second
		reads := 0
		for end := time.Now().Add(fight); time.Now().Before(end); reads++ {
			h.Run(t, "iptables-"+v.String(), "-t", "mangle", "-F", "FORWARD")
			notified(t, calls)
			apply(t, table)
		}
		// Pauses of 0.1, 0.2, 0.4, 0.8 s, and 1 s from then on.
		if reads > 8 {
			t.Errorf("%d reads within %s", reads, fight)
		}
		t.Logf("%d reads within %s", reads, fight)
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
