package bench

import (
	"context"
	"os"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
	"github.com/felixlike/felixlike/test/workloads"
)

// objectRounds bounds the rounds of the work on objects alone:
// it is long, uses no backend, and varies little.
const objectRounds = 3

// objectsTurn is the name of that turn in progress and reports.
const objectsTurn = "objects"

// EngineResult is the cost of the policy engine for a start-up workload.
type EngineResult struct {
	Workload   string              `json:"workload"`
	Placement  workloads.Placement `json:"placement"`
	Namespaces int                 `json:"namespaces"`
	Pods       int                 `json:"pods"`
	Policies   int                 `json:"policies"`
	// EngineWall and EngineCPU are the engine's own; ProcessCPU and PeakRSS
	// are of the whole process, which makes and holds the objects.
	EngineWall measure.Series `json:"engineWallSeconds"`
	EngineCPU  measure.Series `json:"engineCPUSeconds"`
	ProcessCPU measure.Series `json:"processCPUSeconds"`
	PeakRSS    measure.Series `json:"peakRSSBytes"`
	// CPUOfLoop is ProcessCPU as a ratio to the calibration loop around it.
	CPUOfLoop measure.Series `json:"processCPUOfCalibrationLoop"`
	// Work counts the engine's steps; it is the same on every machine.
	Work int `json:"work"`
	// Antrea are the figures of Antrea's benchmark of the same size.
	Antrea *workloads.Figures `json:"antrea,omitempty"`
}

// objects has processes read the workload's objects from files, and the policy
// engine take in clusters.
func (r *run) objects(ctx context.Context) error {
	ns, err := namespace.Anonymous()
	if err != nil {
		return err
	}
	defer ns.Close()
	dir, err := os.MkdirTemp("", "felixlike-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := workload.New(r.Profile).WriteManifests(dir); err != nil {
		return err
	}
	if err := r.work(ctx, ns, worker.Task{Profile: r.Profile, Manifests: dir}); err != nil {
		return err
	}
	if r.Profile.EngineDivisor == 0 {
		return nil
	}
	for _, w := range workloads.All() {
		for _, p := range workloads.Placements() {
			if err := r.work(ctx, ns, worker.Task{Profile: r.Profile, Engine: w.Name, Placement: p}); err != nil {
				return err
			}
		}
	}
	return nil
}

// collectEngine makes results of turns: one a workload and placement.
func collectEngine(turns []engineTurn, calibration measure.Series, divisor int) []EngineResult {
	var out []EngineResult
	for _, t := range turns {
		r := findEngine(out, t.Workload, t.Placement)
		if r == nil {
			out = append(out, EngineResult{
				Workload: t.Workload, Placement: t.Placement, Namespaces: t.Namespaces, Pods: t.Pods, Policies: t.Policies,
				Work: int(t.Work.Total()),
			})
			r = &out[len(out)-1]
			if w, err := workloads.Named(t.Workload); err == nil && divisor == 1 {
				r.Antrea = &w.Antrea
			}
		}
		r.EngineWall = append(r.EngineWall, t.EngineWall.Seconds())
		r.EngineCPU = append(r.EngineCPU, t.EngineCPU)
		r.ProcessCPU = append(r.ProcessCPU, t.ProcessCPU)
		r.PeakRSS = append(r.PeakRSS, float64(t.PeakRSS))
		r.CPUOfLoop = append(r.CPUOfLoop, t.ProcessCPU/loopAround(calibration, t.slot))
	}
	return out
}

func findEngine(results []EngineResult, name string, p workloads.Placement) *EngineResult {
	return find(results, func(r *EngineResult) bool { return r.Workload == name && r.Placement == p })
}

// loopAround returns the CPU time of the calibration loop around a turn: the
// i-th turn ran between the i-th and the next.
func loopAround(calibration measure.Series, slot int) float64 {
	return (calibration[slot] + calibration[slot+1]) / 2
}
