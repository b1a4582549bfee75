package tablestest

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

const (
	shapeRules   = 1000
	shapePackets = 20
	shapeRounds  = 20
	shapePort    = 2000
)

// shape is a way to write a rule that does not match a packet from 10.1.0.1.
type shape struct {
	name    string
	matches []tables.Match
}

// shapes are pairs. In each, the second shape is what policies are rendered to.
func shapes() []shape {
	set := func(name string) tables.Match {
		return tables.MatchSet{Family: model.IPv4, Side: tables.Source, Set: name}
	}
	udp, ports := tables.MatchProtocol{Protocol: model.UDP}, tables.MatchDestinationPorts{First: 9, Last: 9}
	return []shape{
		{"prefix-in-set", []tables.Match{set("nother-4")}},
		{"prefix-compared", []tables.Match{tables.MatchPrefix{Side: tables.Source, Prefix: netip.MustParsePrefix("198.51.100.0/24")}}},
		{"set-then-port", []tables.Match{set("npeers-4"), udp, ports}},
		{"port-then-set", []tables.Match{udp, ports, set("npeers-4")}},
	}
}

// BenchmarkShapes measures the CPU time of a packet in rules of different shapes. program
// programs the chains and sets in the path's router. The shapes take turns, and the thread's
// own CPU time is counted, so other programs disturb little.
func BenchmarkShapes(b *testing.B, p *Path, chains Chains, sets ipsets.Sets, program func()) {
	base := tables.Chain{Name: "forward", Hook: &Forward}
	all := append([]shape{{name: "no-rules"}}, shapes()...)
	for _, s := range []ipsets.Set{
		{Name: "nother-4", Kind: model.Networks, Family: model.IPv4}, {Name: "npeers-4", Kind: model.Networks, Family: model.IPv4},
	} {
		sets.CreateSet(s)
	}
	sets.AddMembers("nother-4", []model.Member{{Prefix: netip.MustParsePrefix("198.51.100.0/24")}})
	sets.AddMembers("npeers-4", []model.Member{{Prefix: netip.MustParsePrefix("10.1.0.0/24")}, {Prefix: netip.MustParsePrefix("198.51.100.0/24")}})
	for i, s := range all {
		c := tables.Chain{Name: "shape-" + s.name}
		for n := range shapeRules {
			if len(s.matches) > 0 {
				c.Rules = append(c.Rules, Rule(tables.Drop{}, fmt.Sprint("rule ", n), s.matches...))
			}
		}
		chains.UpdateChain(c)
		base.Rules = append(base.Rules, Rule(tables.Goto{Chain: c.Name}, s.name, Protocol(model.UDP), Ports(uint16(shapePort+i), uint16(shapePort+i))))
	}
	chains.UpdateChain(base)
	program()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		costs := make([][]float64, len(all))
		for range shapeRounds {
			for i := range all {
				begin := threadTime(b)
				for range shapePackets {
					p.Send(b, model.UDP, netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1"), uint16(shapePort+i))
				}
				costs[i] = append(costs[i], float64(threadTime(b)-begin)/shapePackets)
				p.collect(b)
			}
		}
		floor := medianOf(costs[0])
		for i, s := range all[1:] {
			b.ReportMetric((medianOf(costs[i+1])-floor)/shapeRules, s.name+"-ns/rule")
		}
	}
}

func medianOf(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
