package openflow_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// BenchmarkFootprint reports the memory that a table keeps for each flow.
func BenchmarkFootprint(b *testing.B) {
	for _, size := range []int{1000, 30000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(footprint(b, size), "B/flow")
			}
		})
	}
}

// A node with 30,000 flows keeps them in a few megabytes.
func TestTableKeepsDigestsOnly(t *testing.T) {
	if perFlow := footprint(t, 30000); perFlow > 224 {
		t.Errorf("%.0f bytes a flow", perFlow)
	}
}

func footprint(t testing.TB, size int) float64 {
	before := heap()
	table := openflow.NewFlowTable(owner, 1)
	table.Connect(nowhere{})
	const group = 100
	for i := range size / group {
		table.SetFlows(fmt.Sprint(i), func() []openflow.Flow { return numberedFrom(i*group, group) })
	}
	if _, err := table.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := heap()
	runtime.KeepAlive(table)
	return float64(after-before) / float64(size)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkSteadyApply(b *testing.B) {
	for _, size := range []int{100, 10000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			table := openflow.NewFlowTable(owner, 1)
			table.Connect(nowhere{})
			table.SetFlows("all", fixed(numbered(size)))
			if _, err := table.Apply(b.Context()); err != nil {
				b.Fatal(err)
			}
			allow := openflow.Flow{Table: 20, Priority: 200, Match: openflow.IPv4(), Actions: to(30)}
			one := [2][]openflow.Flow{{allow}, {{Table: 20, Priority: 200, Match: openflow.IPv4()}}}
			for i := 0; b.Loop(); i++ {
				table.SetFlows("one", fixed(one[i%2]))
				if _, err := table.Apply(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// nowhere is a switch that takes everything.
type nowhere struct{}

func (nowhere) Bundle(_ context.Context, mods iter.Seq2[openflow.FlowMod, error]) error {
	for _, err := range mods {
		if err != nil {
			return err
		}
	}
	return nil
}

func (nowhere) Err() error { return nil }

func (nowhere) Barrier(context.Context) error { return nil }

func (nowhere) Monitor(context.Context, func([]openflow.FlowChange, bool)) error { return nil }

func (nowhere) Dump(context.Context, uint16) ([]openflow.Installed, error) { return nil, nil }

func (nowhere) Groups(context.Context) (map[uint32][]byte, error) { return nil, nil }
