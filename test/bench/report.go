package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
)

// ReportVersion is the version of the format of a report in JSON.
const ReportVersion = 2

// Report is the result of a run, with the requested parts.
type Report struct {
	Version int `json:"version"`
	// Command reproduces the run.
	Command string           `json:"command"`
	Started time.Time        `json:"started"`
	Took    float64          `json:"tookSeconds"`
	Profile workload.Profile `json:"profile,omitzero"`
	Rounds  int              `json:"rounds"`
	Machine measure.Machine  `json:"machine"`
	// Calibration is the CPU time of the calibration loop, before the first
	// turn and after each, in seconds.
	Calibration measure.Series `json:"calibrationCPUSeconds,omitempty"`
	Backends    []string       `json:"backends"`
	// CheckEvery is the interval, in seconds, of an agent's full checks with a
	// backend that receives no notifications of foreign changes.
	CheckEvery map[string]float64 `json:"checkEverySeconds,omitempty"`
	// Results are about programming.
	Results []Result `json:"results,omitempty"`
	// Engine is about the policy engine alone.
	Engine  []EngineResult `json:"engine,omitempty"`
	Budgets []Budget       `json:"budgets,omitempty"`
	// Enforcement is about the time from an object to the packets, Packets about
	// traffic between pods; nil if they were not measured.
	Enforcement *Enforcement `json:"enforcement,omitempty"`
	Packets     *Packets     `json:"packets,omitempty"`
}

// Result is the measurement of one case with one backend, or with none.
// Series are means over the operations of a round.
type Result struct {
	Backend string      `json:"backend,omitempty"`
	Case    worker.Case `json:"case"`
	// Tool is the command that loads, if it is not the agent.
	Tool string         `json:"tool,omitempty"`
	Wall measure.Series `json:"wallSeconds"`
	CPU  measure.Series `json:"cpuSeconds"`
	// System is the part of CPU that the kernel used. The kernel samples it by its
	// clock: it is rough for short work.
	System measure.Series `json:"systemCPUSeconds"`
	// StartedCPU is the part of CPU that started programs used.
	StartedCPU measure.Series `json:"startedCPUSeconds,omitempty"`
	// SwitchCPU is the part of CPU that ovs-vswitchd used, SwitchPeakRSS the most
	// memory that it had, in bytes.
	SwitchCPU     measure.Series `json:"switchCPUSeconds,omitempty"`
	SwitchPeakRSS measure.Series `json:"switchPeakRSSBytes,omitempty"`
	Writes        measure.Series `json:"writes,omitempty"`
	// Saves and Restores are the programs that the backend started to read and
	// to write.
	Saves    measure.Series `json:"saves,omitempty"`
	Restores measure.Series `json:"restores,omitempty"`
	// CPUOfLoop is CPU as a ratio to the calibration loop around it.
	CPUOfLoop measure.Series `json:"cpuOfCalibrationLoop"`
	// ModelWall and ModelCPU are from the objects to the model, before
	// Wall and CPU begin.
	ModelWall measure.Series `json:"modelWallSeconds,omitempty"`
	ModelCPU  measure.Series `json:"modelCPUSeconds,omitempty"`
	PeakRSS   measure.Series `json:"peakRSSBytes,omitempty"`
	// NotifiedWall is the part of Wall before the agent was notified of a foreign
	// change.
	NotifiedWall measure.Series `json:"notifiedWallSeconds,omitempty"`
	// Latency is that of single operations, Answered the part of it until the
	// switch had accepted the flows: before it had looked through its caches.
	Latency  measure.Latency `json:"latency"`
	Answered measure.Latency `json:"answered,omitzero"`
	// Rules and Elements are the kernel's numbers, Flows the switch's.
	Flows    int `json:"flows,omitempty"`
	Rules    int `json:"rules,omitempty"`
	Elements int `json:"elements,omitempty"`
}

// Find returns the result of a case with a backend, or nil.
func (r *Report) Find(backend string, c worker.Case) *Result {
	return find(r.Results, func(f *Result) bool { return f.Backend == backend && f.Case == c })
}

// loadRatio returns the first load as a multiple of the kernel's
// own tools, in pairs.
func (r *Report) loadRatio(backend string) (wall, cpu measure.Series) {
	ours, tool := r.Find(backend, worker.FirstLoad), r.Find(backend, worker.ToolLoad)
	if ours == nil || tool == nil {
		return nil, nil
	}
	return ours.Wall.Over(tool.Wall), ours.CPU.Over(tool.CPU)
}

// ofFirst returns the CPU time of a result as a multiple of that of the first
// backend, in pairs; nothing for the first backend itself.
func (r *Report) ofFirst(result *Result) measure.Series {
	if result.Backend == r.Backends[0] || result.Backend == "" {
		return nil
	}
	first := r.Find(r.Backends[0], result.Case)
	if first == nil {
		return nil
	}
	return result.CPU.Over(first.CPU)
}

// startsPrograms reports whether a backend of this run starts programs.
func (r *Report) startsPrograms() bool {
	return slices.ContainsFunc(r.Results, func(f Result) bool { return f.Saves.Max()+f.Restores.Max() > 0 })
}

// Decode reads a Report from JSON.
func Decode(data []byte) (*Report, error) {
	var r Report
	switch err := json.Unmarshal(data, &r); {
	case err != nil:
		return nil, fmt.Errorf("decode report: %w", err)
	case r.Version != ReportVersion:
		return nil, fmt.Errorf("decode report: version %d, want %d: measure again", r.Version, ReportVersion)
	case len(r.Backends) == 0:
		return nil, errors.New("decode report: it has no backends")
	}
	return &r, nil
}
