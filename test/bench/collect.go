package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/measure"
)

// collect makes results of turns: one a backend and case, in the order in
// which they were first measured.
func collect(turns []turn, calibration measure.Series) ([]Result, error) {
	var order []resultKey
	results := map[resultKey]*Result{}
	done, answered := map[resultKey]*measure.Latencies{}, map[resultKey]*measure.Latencies{}
	for _, t := range turns {
		r := results[t.resultKey]
		if r == nil {
			r = &Result{Backend: t.backend, Case: t.c, Tool: t.tool}
			results[t.resultKey], done[t.resultKey], answered[t.resultKey] = r, measure.NewLatencies(), measure.NewLatencies()
			order = append(order, t.resultKey)
		}
		if err := errors.Join(done[t.resultKey].Record(t.Wall), answered[t.resultKey].Record(t.Answered)); err != nil {
			return nil, fmt.Errorf("%s %s: %w", t.backend, t.c, err)
		}
		r.add(&t.Measurement, loopAround(calibration, t.slot))
	}
	out := make([]Result, 0, len(order))
	for _, key := range order {
		r := results[key]
		r.Latency = done[key].Latency()
		if a := answered[key].Latency(); a.Count > 0 {
			r.Answered = a
		}
		out = append(out, *r)
	}
	return out, nil
}

// add adds a round. Loop is the CPU time of the calibration loop around it.
func (r *Result) add(m *worker.Measurement, loop float64) {
	n := float64(len(m.Wall))
	var wall time.Duration
	for _, w := range m.Wall {
		wall += w
	}
	cpu := m.CPU.Total().Seconds() / n
	r.Wall = append(r.Wall, wall.Seconds()/n)
	r.CPU = append(r.CPU, cpu)
	r.System = append(r.System, m.CPU.System.Seconds()/n)
	r.StartedCPU = append(r.StartedCPU, m.CPU.Started.Seconds()/n)
	r.CPUOfLoop = append(r.CPUOfLoop, cpu/loop)
	r.Writes = append(r.Writes, float64(m.Writes)/n)
	r.Saves = append(r.Saves, float64(m.Saves)/n)
	r.Restores = append(r.Restores, float64(m.Restores)/n)
	if m.CPU.Switch > 0 {
		r.SwitchCPU = append(r.SwitchCPU, m.CPU.Switch.Seconds()/n)
	}
	if m.SwitchPeakRSS > 0 {
		r.SwitchPeakRSS = append(r.SwitchPeakRSS, float64(m.SwitchPeakRSS))
	}
	if m.PeakRSS > 0 {
		r.PeakRSS = append(r.PeakRSS, float64(m.PeakRSS))
	}
	if m.Model != (worker.Phase{}) {
		r.ModelWall = append(r.ModelWall, m.Model.Wall.Seconds()/n)
		r.ModelCPU = append(r.ModelCPU, m.Model.CPU.Total().Seconds()/n)
	}
	if m.Notified != 0 {
		r.NotifiedWall = append(r.NotifiedWall, m.Notified.Seconds()/n)
	}
	r.Flows = max(r.Flows, m.Flows)
	r.Rules, r.Elements = max(r.Rules, m.Rules), max(r.Elements, m.Elements)
}
