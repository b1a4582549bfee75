package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

var countedRule = regexp.MustCompile(`(?m)^\[(\d+):\d+\] -A (.*)$`)

// counted returns the packets of each rule.
func (h host) counted(t testing.TB, f model.Family) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range countedRule.FindAllStringSubmatch(h.save(t, f, "-c"), -1) {
		out[m[2]] = m[1]
	}
	return out
}

// withCounters gives every rule of ours a number of packets of its own.
func (h host) withCounters(t testing.TB, f model.Family) {
	t.Helper()
	packets := 0
	saved := regexp.MustCompile(`(?m)^\[\d+:\d+\] -A`).ReplaceAllStringFunc(h.save(t, f, "-c"), func(string) string {
		packets++
		return fmt.Sprintf("[%d:%d] -A", packets, 100*packets)
	})
	h.Feed(t, saved, h.tool(f, "restore"), "--counters")
}

func TestEditKeepsCounters(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		loadExample(table)
		apply(t, table)
		h.withCounters(t, model.IPv4)
		before := h.counted(t, model.IPv4)

		edited := *table.chains["pin-x/base-1"].desired
		edited.Rules = append([]tables.Rule{rule(tables.Drop{}, "new first", proto(model.UDP))}, edited.Rules...)
		edited.Rules[3].Comment = "x/base renamed"
		edited.Rules = append(edited.Rules, rule(tables.Return{}, "new last"), rule(tables.Return{}, "new last"))
		table.UpdateChain(edited)
		saves, restores := table.tools.saves, table.tools.restores
		// The renamed rule is of IPv4 only, the others are of both.
		if r := apply(t, table); r.Messages != 4+3 || r.RulesAdded != 4+3 || r.RulesDeleted != 1 || r.FullRead {
			t.Errorf("edit: %+v", r)
		}
		if table.tools.saves != saves || table.tools.restores != restores+2 {
			t.Errorf("the edit has run %+v, before %d saves, %d restores", table.tools, saves, restores)
		}
		after, kept := h.counted(t, model.IPv4), 0
		for text, packets := range before {
			switch got, ok := after[text]; {
			case !ok:
			case got == packets:
				kept++
			default:
				t.Errorf("rule %q has counted %s packets, before %s", text, got, packets)
			}
		}
		if kept != len(before)-1 {
			t.Errorf("%d of %d rules are still there, want all but one", kept, len(before))
		}
		table.Invalidate()
		wantSilent(t, table)

		// The positions are known for the next edit. One of the new rules is of one
		// family: the other is left alone.
		edited.Rules = append([]tables.Rule{}, edited.Rules[:len(edited.Rules)-1]...)
		edited.Rules[1].Comment = "x/base renamed too"
		table.UpdateChain(edited)
		restores = table.tools.restores
		if r := apply(t, table); r.Messages != 2+1 || r.FullRead || table.tools.restores != restores+2 {
			t.Errorf("second edit: %+v", r)
		}
		edited.Rules = append([]tables.Rule{}, edited.Rules...)
		edited.Rules[1].Comment = "x/base renamed again"
		table.UpdateChain(edited)
		restores, saves = table.tools.restores, table.tools.saves
		if r := apply(t, table); r.Messages != 1 || table.tools.restores != restores+1 || table.tools.saves != saves || r.Saves != 0 || r.Restores != 1 {
			t.Errorf("one rule of IPv4: %+v", r)
		}
		table.Invalidate()
		wantSilent(t, table)
	})
}

func TestChainsComeAndGoInOneWrite(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		loadExample(table)
		apply(t, table)
		table.RemoveChain("pin-x/base-1")
		table.UpdateChain(tables.Chain{Name: "another", Rules: []tables.Rule{rule(tables.Accept{}, "", srcSet(model.IPv4, "aweb-4"))}})
		table.UpdateChain(tables.Chain{Name: "pods-in-x/base-1", Rules: []tables.Rule{rule(tables.Jump{Chain: "another"}, "x/base")}})
		restores := table.tools.restores
		apply(t, table)
		if table.tools.restores != restores+2 {
			t.Errorf("%d restores", table.tools.restores-restores)
		}
		state := h.state(t)
		if strings.Contains(state, "flx-pin-x") || !strings.Contains(state, ":flx-another -\n") {
			t.Error(state)
		}
		table.Invalidate()
		wantSilent(t, table)

		// A hook that moves takes its chains along, and nothing stays behind.
		table.UpdateChain(tables.Chain{
			Name: "forward", Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: -150},
			Rules: table.chains["forward"].desired.Rules,
		})
		apply(t, table)
		state = h.state(t)
		if strings.Contains(state, "*filter") || !strings.Contains(state, "*mangle") {
			t.Error(state)
		}
		table.Invalidate()
		wantSilent(t, table)

		for name := range table.chains {
			table.RemoveChain(name)
		}
		apply(t, table)
		if state := h.state(t); state != "" {
			t.Errorf("left:\n%s", state)
		}
		if len(table.chains) != 0 {
			t.Errorf("%d chains are remembered", len(table.chains))
		}
		wantSilent(t, table)
	})
}

// A chain is where rules lead to it from, in each family and table, and only
// there.
func TestChainsLiveWhereTheyAreReached(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		table.UpdateChain(tables.Chain{Name: "forward", Hook: &tablestest.Forward, Rules: []tables.Rule{
			rule(tables.Jump{Chain: "four"}, "", prefix(tables.Source, "10.0.0.0/8", false)),
			rule(tables.Jump{Chain: "six"}, "", prefix(tables.Source, "fd00::/8", false)),
			rule(tables.Jump{Chain: "nowhere"}, "", prefix(tables.Source, "::/0", true)),
		}})
		table.UpdateChain(tables.Chain{Name: "prerouting", Hook: &tablestest.Prerouting, Rules: []tables.Rule{
			rule(tables.Jump{Chain: "six"}, "", prefix(tables.Source, "fd00::/8", false)),
		}})
		for _, name := range []string{"four", "six", "nowhere", "alone"} {
			table.UpdateChain(tables.Chain{Name: name, Rules: []tables.Rule{rule(tables.Goto{Chain: "end"}, "")}})
		}
		table.UpdateChain(tables.Chain{Name: "end"})
		apply(t, table)
		want := map[string]string{
			"four":       "IPv4 filter",
			"six":        "IPv6 raw, IPv6 filter",
			"end":        "IPv4 filter, IPv6 raw, IPv6 filter",
			"forward":    "IPv4 filter, IPv6 filter",
			"prerouting": "IPv6 raw",
		}
		if diff := cmp.Diff(want, h.placesOfChains(t)); diff != "" {
			t.Error(diff)
		}
		table.Invalidate()
		wantSilent(t, table)
	})
}

// placesOfChains returns the places at which the kernel has the chains of ours.
func (h host) placesOfChains(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, f := range model.Families() {
		s := parseSaved(h.save(t, f))
		for _, p := range placesOf(f) {
			for name := range s.tables[p.table()].chains {
				if out[name] != "" {
					out[name] += ", "
				}
				out[name] += p.String()
			}
		}
	}
	return out
}

// A lock that others hold is waited for, inside the time that the context gives,
// and costs nothing but that time.
func TestLockIsWaitedFor(t *testing.T) {
	// Not the lock of this host, on which others wait.
	path := filepath.Join(t.TempDir(), "lock")
	t.Setenv("XTABLES_LOCKFILE", path)
	h := newHost(t, Legacy)
	table := h.open(t)
	loadExample(table)
	apply(t, table)
	table.tools.wait = 1
	lock, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	before := h.state(t)
	table.UpdateChain(tables.Chain{Name: "to-pods", Rules: []tables.Rule{rule(tables.Drop{}, "closed")}})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := table.Apply(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the lock was held: %v", err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %s to give up", took)
	}
	if diff := cmp.Diff(before, h.state(t)); diff != "" {
		t.Error(diff)
	}
	release := time.AfterFunc(1500*time.Millisecond, func() { _ = syscall.Flock(int(lock.Fd()), syscall.LOCK_UN) })
	defer release.Stop()
	apply(t, table)
	if table.tools.restores < 4 {
		t.Errorf("%d restores: none has met the lock", table.tools.restores)
	}
	wantSilent(t, table)
	table.Invalidate()
	wantSilent(t, table)
}

// A program that hangs is killed when the time is up.
func TestHungProgramIsKilled(t *testing.T) {
	h := newHost(t, NFT)
	table := h.open(t)
	loadExample(table)
	apply(t, table)
	good := table.tools.restore[model.IPv4]
	table.tools.restore[model.IPv4] = writeScript(t, "#!/bin/sh\nexec sleep 1000\n")
	table.UpdateChain(tables.Chain{Name: "to-pods", Rules: []tables.Rule{rule(tables.Drop{}, "closed")}})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := table.Apply(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	table.tools.restore[model.IPv4] = good
	if r := apply(t, table); !r.FullRead || r.Messages == 0 {
		t.Errorf("afterwards: %+v", r)
	}
	table.Invalidate()
	wantSilent(t, table)
}

func TestCancelledContext(t *testing.T) {
	h := newHost(t, NFT)
	table := h.open(t)
	loadExample(table)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := table.Apply(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if state := h.state(t); state != "" {
		t.Error(state)
	}
}

func TestNoVariantIsAnError(t *testing.T) {
	_, err := New(Options{}).Apply(t.Context())
	if err == nil || !strings.Contains(err.Error(), "variant auto cannot be programmed") {
		t.Error(err)
	}
}

// writeScript writes a program that stands in for another.
func writeScript(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
