package iptables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// load wants chains of ten rules, with a rule that leads to each, and makes a
// set for every four chains.
func load(t testing.TB, h host, table *Table, chains int) {
	t.Helper()
	var sets strings.Builder
	base := tables.Chain{Name: "forward", Hook: &tablestest.Forward}
	for i := range chains {
		c := bigChain(i)
		if i%4 == 0 {
			fmt.Fprintf(&sets, "create -exist flx-a%d-4 hash:ip\n", i/4)
		}
		table.UpdateChain(c)
		to := tables.MatchPrefix{Side: tables.Destination, Prefix: netip.PrefixFrom(nth(i), 32)}
		base.Rules = append(base.Rules, rule(tables.Goto{Chain: c.Name}, "policies of the pod", to))
	}
	table.UpdateChain(base)
	h.Feed(t, sets.String(), "ipset", "restore")
}

func bigChain(i int) tables.Chain {
	c := tables.Chain{Name: fmt.Sprintf("pin-ns/policy-%d", i)}
	for n := range uint16(10) {
		c.Rules = append(c.Rules, rule(tables.Accept{}, fmt.Sprintf("ns/policy-%d ingress[%d]", i, n),
			srcSet(model.IPv4, fmt.Sprintf("a%d-4", i/4)), proto(model.TCP), ports(80+n, 80+n)))
	}
	return c
}

// nth returns the address that is n behind 10.2.0.0.
func nth(n int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 10<<24+2<<16+uint32(n))))
}

func TestTwentyThousandRules(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		table := h.open(t)
		const chains = 2000
		load(t, h, table, chains)
		r := apply(t, table)
		t.Logf("first load: %+v", r)
		if r.RulesAdded != 11*chains+1 || r.Rules != r.RulesAdded || table.tools.restores != 1 {
			t.Errorf("%d rules, %d restores", r.RulesAdded, table.tools.restores)
		}
		wantSilent(t, table)

		restarted := h.open(t)
		start := time.Now()
		load(t, h, restarted, chains)
		loaded := time.Since(start)
		r = apply(t, restarted)
		t.Logf("restart: setters %v, %+v", loaded, r)
		if r.Messages != 0 {
			t.Error("the restart has written")
		}

		edited := bigChain(7)
		edited.Rules = edited.Rules[1:]
		restarted.UpdateChain(edited)
		r = apply(t, restarted)
		t.Logf("one rule less: %+v", r)
		if r.Messages != 1 || r.FullRead {
			t.Error("more was done than needed")
		}
		start = time.Now()
		if err := restarted.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("removed in %v", time.Since(start))
		if state := h.state(t); state != "" {
			t.Error(state)
		}
	})
}

// sizes runs a benchmark with both variants in tables of several sizes.
func sizes(b *testing.B, run func(b *testing.B, table *Table)) {
	for _, v := range variants {
		for _, chains := range []int{100, 1000} {
			b.Run(fmt.Sprintf("variant=%s/rules=%d", v, 10*chains), func(b *testing.B) {
				h := newHost(b, v)
				table := h.open(b)
				load(b, h, table, chains)
				apply(b, table)
				run(b, table)
			})
		}
	}
}

// BenchmarkOneRule changes one rule of ten of a chain: one restore.
func BenchmarkOneRule(b *testing.B) {
	sizes(b, func(b *testing.B, table *Table) {
		c, i := bigChain(3), 0
		for b.Loop() {
			i++
			next := tables.Chain{Name: c.Name, Rules: append([]tables.Rule{}, c.Rules...)}
			next.Rules[4].Comment = fmt.Sprint("edit ", i)
			table.UpdateChain(next)
			if r := apply(b, table); r.Messages != 1 || r.FullRead {
				b.Fatalf("%+v", r)
			}
		}
	})
}

// BenchmarkNewEndpoint adds a chain and the rule that leads to it, and removes
// both again.
func BenchmarkNewEndpoint(b *testing.B) {
	sizes(b, func(b *testing.B, table *Table) {
		without := *table.chains["forward"].desired
		with := without
		c := tables.Chain{Name: "new", Rules: bigChain(0).Rules}
		with.Rules = append(without.Rules[:len(without.Rules):len(without.Rules)], rule(tables.Goto{Chain: "new"}, ""))
		for i := 0; b.Loop(); i++ {
			if i%2 == 0 {
				table.UpdateChain(c)
				table.UpdateChain(with)
			} else {
				table.RemoveChain("new")
				table.UpdateChain(without)
			}
			if r := apply(b, table); r.Messages == 0 || r.FullRead {
				b.Fatalf("%+v", r)
			}
		}
	})
}

// BenchmarkRestart reads the tables and finds nothing to do.
func BenchmarkRestart(b *testing.B) {
	sizes(b, func(b *testing.B, table *Table) {
		for b.Loop() {
			table.Invalidate()
			if r := apply(b, table); r.Messages != 0 {
				b.Fatalf("%+v", r)
			}
		}
	})
}

// BenchmarkFirstLoad loads all rules.
func BenchmarkFirstLoad(b *testing.B) {
	sizes(b, func(b *testing.B, table *Table) {
		rules := 0
		for b.Loop() {
			b.StopTimer()
			if err := table.Remove(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			rules += apply(b, table).RulesAdded
		}
		b.ReportMetric(float64(rules)/b.Elapsed().Seconds(), "rules/s")
	})
}
