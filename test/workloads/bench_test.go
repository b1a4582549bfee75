package workloads_test

import (
	"testing"

	"github.com/felixlike/felixlike/test/workloads"
)

// BenchmarkStart measures each workload in a fresh process; run it with
// -benchtime 1x -count 5.
func BenchmarkStart(b *testing.B) {
	for _, w := range workloads.All() {
		for _, p := range workloads.Placements() {
			b.Run(w.Name+"/"+string(p), func(b *testing.B) {
				for b.Loop() {
					m, err := workloads.Run(b.Context(), w, p)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(m.EngineCPU, "engine-cpu-s")
					b.ReportMetric(m.ProcessCPU, "process-cpu-s")
					b.ReportMetric(float64(m.PeakRSS)/1e6, "peak-rss-MB")
					b.ReportMetric(float64(m.EngineHeap)/1e6, "engine-heap-MB")
					b.ReportMetric(float64(m.ObjectsHeap)/1e6, "objects-heap-MB")
					b.ReportMetric(float64(m.Allocations), "allocations")
					b.ReportMetric(float64(m.Work.Total()), "work")
				}
			})
		}
	}
}
