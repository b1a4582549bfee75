package workloads

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/measure"
)

// Measurement is the cost of one start-up. Sizes are in bytes, CPU is that of
// all threads, with the garbage collector's.
type Measurement struct {
	Workload  string    `json:"workload"`
	Placement Placement `json:"placement"`
	// Namespaces, Pods and Policies are the objects handed in.
	Namespaces int `json:"namespaces"`
	Pods       int `json:"pods"`
	Policies   int `json:"policies"`

	// EngineCPU, EngineWall and the allocations are from before the engine is
	// made until Flush has returned the model.
	EngineCPU   float64       `json:"engineCPUSeconds"`
	EngineWall  time.Duration `json:"engineWallNanoseconds"`
	Allocations uint64        `json:"allocations"`
	Allocated   uint64        `json:"allocatedBytes"`
	// ProcessCPU is that of the whole process up to then, the making of the
	// objects included.
	ProcessCPU float64 `json:"processCPUSeconds"`
	// PeakRSS is that of the whole process, which holds all objects.
	PeakRSS uint64 `json:"peakRSSBytes"`
	// ObjectsHeap is the live heap of the objects, EngineHeap that of the
	// engine beyond them, without the updates it returned.
	ObjectsHeap uint64 `json:"objectsHeapBytes"`
	EngineHeap  uint64 `json:"engineHeapBytes"`

	Result Result      `json:"result"`
	Work   policy.Work `json:"work"`
}

// Result counts the objects in the node's model.
type Result struct {
	Groups    int `json:"groups"`
	Members   int `json:"members"`
	Policies  int `json:"policies"`
	Endpoints int `json:"endpoints"`
}

// Measure measures a workload in this process. Peak RSS and ProcessCPU mean
// something in a fresh process only: see Run.
func Measure(w Workload, p Placement) (Measurement, error) {
	empty := liveHeap()
	c := w.Objects(p)
	m := Measurement{Workload: w.Name, Placement: p, Namespaces: len(c.Namespaces), Pods: len(c.Pods), Policies: len(c.Policies)}
	before := liveHeap()
	m.ObjectsHeap = before.HeapAlloc - empty.HeapAlloc

	cpu, start := processCPU(), time.Now()
	e := policy.New(LocalNode)
	if err := Load(e, c); err != nil {
		return m, fmt.Errorf("load %s: %w", w.Name, err)
	}
	updates := e.Flush()
	m.EngineWall = time.Since(start)
	m.ProcessCPU = processCPU()
	m.EngineCPU = m.ProcessCPU - cpu
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	m.Allocations, m.Allocated = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	used, err := measure.ProcessUsageOf(os.Getpid())
	if err != nil {
		return m, err
	}
	m.PeakRSS = used.Peak
	m.Result, m.Work = count(updates), e.Work()
	updates = nil
	m.EngineHeap = liveHeap().HeapAlloc - before.HeapAlloc
	runtime.KeepAlive(c)
	runtime.KeepAlive(e)
	return m, nil
}

func count(updates []model.Update) Result {
	var r Result
	for _, u := range updates {
		switch u := u.(type) {
		case model.GroupUpdate:
			r.Groups++
			r.Members += len(u.Added)
		case model.PolicyUpdate:
			r.Policies++
		case model.EndpointUpdate:
			r.Endpoints++
		}
	}
	return r
}

// liveHeap collects garbage and returns the statistics of the rest.
func liveHeap() runtime.MemStats {
	// Twice: the first collection may leave what a finalizer still held.
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s
}

// processCPU returns the CPU-seconds of the process so far.
func processCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot fail with a valid pointer (getrusage(2))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
