package openflow_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// BenchmarkFootprint tells the memory that a table keeps for each flow.
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
	if perFlow := footprint(t, 30000); perFlow > 200 {
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
