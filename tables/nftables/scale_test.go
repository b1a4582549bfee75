package nftables

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// load wants chains of ten rules, a set for every four chains, and an entry
// of the dispatch map for each chain.
func load(table *Table, chains int) {
	table.CreateMap("to-pods-4", model.IPv4)
	table.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{
		rule(tables.Dispatch{Family: model.IPv4, Side: tables.Destination, Map: "to-pods-4"}, "policies of the pod"),
	}})
	for i := range chains {
		c := bigChain(i)
		name := fmt.Sprintf("a%d-4", i/4)
		if i%4 == 0 {
			table.CreateSet(ipsets.Set{Name: name, Kind: model.Addresses, Family: model.IPv4})
			for n := range 20 {
				table.AddMembers(name, []model.Member{model.AddressMember(nth("10.1.0.0", i*20+n))})
			}
		}
		table.UpdateChain(c)
		table.SetVerdict("to-pods-4", nth("10.2.0.0", i), tables.Goto{Chain: c.Name})
	}
}

func bigChain(i int) tables.Chain {
	c := tables.Chain{Name: fmt.Sprintf("pin-ns/policy-%d", i)}
	for n := range uint16(10) {
		c.Rules = append(c.Rules, rule(tables.Accept{}, fmt.Sprintf("ns/policy-%d ingress[%d]", i, n),
			srcSet(model.IPv4, fmt.Sprintf("a%d-4", i/4)), proto(model.TCP), ports(80+n, 80+n)))
	}
	return c
}

func TestTwentyThousandRules(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ns := newNamespace(t)
	table := ns.open(t)
	const chains = 2000
	load(table, chains)
	r := apply(t, table)
	t.Logf("first load: %+v", r)
	if r.RulesAdded != 10*chains+1 {
		t.Errorf("%d rules", r.RulesAdded)
	}
	if !table.synced {
		t.Error("the kernel has not echoed all handles")
	}
	state, err := table.conn.Read(DefaultTable)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range state.Chains {
		for i, r := range c.Rules {
			if known := table.chains[name].observed.Rules[i]; known != r {
				t.Fatalf("chain %s: rule %d is known as %+v, the kernel has %+v", name, i, known, r)
			}
		}
	}
	wantSilent(t, table)

	restarted := ns.open(t)
	start := time.Now()
	load(restarted, chains)
	loaded := time.Since(start)
	r = apply(t, restarted)
	t.Logf("restart: setters %v, %+v", loaded, r)
	if r.Messages != 0 {
		t.Error("the restart has written")
	}

	edited := bigChain(7)
	edited.Rules = edited.Rules[1:]
	restarted.UpdateChain(edited)
	if r := apply(t, restarted); r.Messages != 1 || r.FullRead {
		t.Errorf("one rule less: %+v", r)
	}
}

// A load in many small transactions ends as one in a single one does, and the
// base chains come with the last.
func TestChunkedLoad(t *testing.T) {
	single, chunked := newNamespace(t), newNamespace(t)
	one, many := single.open(t), chunked.open(t)
	many.limit = 20
	loadExample(one)
	loadExample(many)
	load(one, 50)
	load(many, 50)
	a, b := apply(t, one), apply(t, many)
	a.Duration, b.Duration = 0, 0
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v in one transaction, %+v in many", a, b)
	}
	wantSilent(t, many)
	many.Invalidate()
	wantSilent(t, many)
	one.Invalidate()
	wantSilent(t, one)

	// The last transaction is refused, since only base chains show a loop: the chain
	// that closes it is found all the same.
	refused := newNamespace(t)
	table := refused.open(t)
	table.limit = 20
	loadExample(table)
	table.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{rule(tables.Jump{Chain: "to-pods"}, "a loop")}})
	if r := apply(t, table); len(r.Refused) != 1 || r.Refused[0].Name != "pin-x/base-1" {
		t.Errorf("%+v", r)
	}
	loadExample(table)
	if r := apply(t, table); len(r.Refused) != 0 {
		t.Errorf("%+v", r)
	}
	wantSilent(t, table)
}

// sizes runs a benchmark in tables of several sizes. The time on a shared machine
// says little; that of the processor, with garbage collection, says more.
func sizes(b *testing.B, run func(b *testing.B, ns namespace, table *Table, chains int)) {
	for _, chains := range []int{100, 1000, 2000, 5500} {
		b.Run(fmt.Sprintf("rules=%d", 10*chains), func(b *testing.B) {
			ns := newNamespace(b)
			table := ns.open(b)
			load(table, chains)
			apply(b, table)
			b.ReportAllocs()
			run(b, ns, table, chains)
		})
	}
}

// steadily runs a step of a benchmark over and over.
func steadily(b *testing.B, step func(i int)) {
	cpu := ownCPU(b)
	for i := 0; b.Loop(); i++ {
		step(i)
	}
	b.ReportMetric((ownCPU(b)-cpu).Seconds()*1000/float64(b.N), "cpu-ms/op")
}

// BenchmarkOneElement changes one member of a set.
func BenchmarkOneElement(b *testing.B) {
	sizes(b, func(b *testing.B, _ namespace, table *Table, _ int) {
		m := membersOf("10.9.9.9")
		steadily(b, func(i int) {
			if i%2 == 0 {
				table.AddMembers("a1-4", m)
			} else {
				table.RemoveMembers("a1-4", m)
			}
			if r := apply(b, table); r.Messages != 1 {
				b.Fatalf("%+v", r)
			}
		})
	})
}

// BenchmarkOneRule changes one rule of ten of a chain. Most of its time is the
// kernel's: on a change of a rule with a lookup it walks, from the base chains
// on, all chains that rules and verdict maps lead to.
func BenchmarkOneRule(b *testing.B) {
	sizes(b, func(b *testing.B, _ namespace, table *Table, _ int) {
		c := bigChain(3)
		steadily(b, func(i int) {
			next := tables.Chain{Name: c.Name, Rules: append([]tables.Rule{}, c.Rules...)}
			next.Rules[4].Comment = fmt.Sprint("edit ", i)
			table.UpdateChain(next)
			if r := apply(b, table); r.Messages != 2 {
				b.Fatalf("%+v", r)
			}
		})
	})
}

// BenchmarkFullRead reads the table again and finds nothing to do.
func BenchmarkFullRead(b *testing.B) {
	sizes(b, func(b *testing.B, _ namespace, table *Table, _ int) {
		steadily(b, func(int) {
			table.Invalidate()
			if r := apply(b, table); r.Messages != 0 {
				b.Fatalf("%+v", r)
			}
		})
	})
}

// BenchmarkRestart is the first Apply of a process that finds everything as desired; its setters are measured
// apart.
func BenchmarkRestart(b *testing.B) {
	sizes(b, func(b *testing.B, ns namespace, _ *Table, chains int) {
		var cpu, setters time.Duration
		for b.Loop() {
			b.StopTimer()
			table := ns.open(b)
			start := ownCPU(b)
			load(table, chains)
			loaded := ownCPU(b)
			b.StartTimer()
			if r := apply(b, table); r.Messages != 0 {
				b.Fatalf("%+v", r)
			}
			setters, cpu = setters+loaded-start, cpu+ownCPU(b)-loaded
		}
		b.ReportMetric(cpu.Seconds()*1000/float64(b.N), "cpu-ms/op")
		b.ReportMetric(setters.Seconds()*1000/float64(b.N), "setters-cpu-ms/op")
	})
}

// BenchmarkFirstLoad loads the whole table.
func BenchmarkFirstLoad(b *testing.B) {
	sizes(b, func(b *testing.B, _ namespace, table *Table, _ int) {
		rules := 0
		steadily(b, func(int) {
			if err := table.Remove(b.Context()); err != nil {
				b.Fatal(err)
			}
			rules += apply(b, table).RulesAdded
		})
		b.ReportMetric(float64(rules)/b.Elapsed().Seconds(), "rules/s")
	})
}
