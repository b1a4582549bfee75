package bench

import (
	"slices"

	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
	"github.com/felixlike/felixlike/test/workloads"
)

// Unit is the unit of a figure.
type Unit string

// The units of figures.
const (
	Seconds Unit = "seconds"
	// PerPacket and PerGB are of time, too.
	PerPacket Unit = "seconds a packet"
	PerGB     Unit = "seconds a GB"
	Bytes     Unit = "bytes"
	Times     Unit = "times"
	PerSecond Unit = "per second"
	BitsPerS  Unit = "bits per second"
)

// Print prints a value in the unit, as reports do.
func (u Unit) Print(v float64) string {
	switch u {
	case Seconds:
		return measure.Duration(v)
	case PerPacket:
		return measure.Microseconds().Print(v)
	case PerGB:
		return measure.Seconds(1).Print(v)
	case Bytes:
		return measure.Megabytes().Print(v)
	case BitsPerS:
		return measure.Megabits().Print(v)
	case PerSecond:
		return measure.Digits(v) + "/s"
	}
	return measure.Digits(v)
}

// Kind is the kind of figure of an operation.
type Kind string

// The kinds of figures.
const (
	Wall    Kind = "wall"
	CPU     Kind = "CPU"
	Mean    Kind = "mean"
	P50     Kind = "p50"
	P99     Kind = "p99"
	PeakRSS Kind = "peak RSS"
	// SwitchRSS is the peak RSS of ovs-vswitchd.
	SwitchRSS Kind = "peak RSS of vswitchd"
	Writes    Kind = "writes"
	Programs  Kind = "programs started"
	Rate      Kind = "rate"
	// First is the time of the first connection, with nothing cached.
	First Kind = "first"
	// CPUEach is CPU time of the whole machine by packet, CPUEachGB by 1e9 bytes.
	CPUEach   Kind = "CPU a packet"
	CPUEachGB Kind = "CPU a GB"
)

// Metric is one figure of a report, as it is compared with another's.
type Metric struct {
	// What describes the operation; with Backend and Kind it names a metric.
	What    string
	Backend string
	Kind    Kind
	Unit    Unit
	// Value is over all rounds; Rounds has one value a round.
	Value  float64
	Rounds measure.Series
	// OfLoop is Rounds as multiples of the calibration loop, if known.
	OfLoop measure.Series
}

// MoreIsBetter reports whether it is a figure that should be high.
func (m *Metric) MoreIsBetter() bool { return m.Kind == Rate }

// metrics are those of a report while they are listed.
type metrics struct {
	all  []Metric
	loop float64
}

// add adds a metric that was measured, with its rounds.
func (m *metrics) add(what, backend string, k Kind, u Unit, rounds measure.Series) {
	if len(rounds) > 0 {
		m.all = append(m.all, Metric{What: what, Backend: backend, Kind: k, Unit: u, Value: rounds.Median(), Rounds: rounds, OfLoop: m.ofLoop(u, rounds)})
	}
}

// ofLoop returns times as multiples of the calibration loop of the whole run.
func (m *metrics) ofLoop(u Unit, rounds measure.Series) measure.Series {
	if m.loop <= 0 {
		return nil
	}
	var out measure.Series
	for _, v := range rounds {
		switch u {
		case Seconds, PerPacket, PerGB:
			out = append(out, v/m.loop)
		case PerSecond, BitsPerS:
			out = append(out, v*m.loop)
		}
	}
	return out
}

// quantiles adds those of a latency that are not just of its slowest operations.
func (m *metrics) quantiles(what, backend string, l measure.Latency) {
	for _, q := range []struct {
		Kind
		least  int64 // operations
		rounds measure.Series
	}{{P50, 10, l.P50Rounds}, {P99, 100, l.P99Rounds}} {
		if l.Count >= q.least {
			m.add(what, backend, q.Kind, Seconds, q.rounds)
		}
	}
}

// Metrics returns the figures that can be compared with another report, in the
// order of the report.
func (r *Report) Metrics() []Metric {
	return slices.Concat(r.ProgrammingMetrics(), r.EnforcementMetrics(), r.PacketsMetrics())
}

// ProgrammingMetrics are those of programming and of the policy engine.
func (r *Report) ProgrammingMetrics() []Metric {
	m := &metrics{loop: r.Calibration.Median()}
	for i := range r.Results {
		m.result(&r.Results[i])
	}
	for i := range r.Engine {
		e := &r.Engine[i]
		what := "policy engine, " + e.Workload + ", pods on one node"
		if e.Placement != workloads.EveryPodLocal {
			what = "policy engine, " + e.Workload + ", pods on 1,000 nodes"
		}
		m.add(what, "", Wall, Seconds, e.EngineWall)
		m.add(what, "", CPU, Seconds, e.EngineCPU)
		m.add(what, "", PeakRSS, Bytes, e.PeakRSS)
	}
	return m.all
}

// EnforcementMetrics are those of the time from an object to the packets.
func (r *Report) EnforcementMetrics() []Metric {
	m := &metrics{loop: r.Calibration.Median()}
	if r.Enforcement == nil {
		return nil
	}
	for i := range r.Enforcement.Results {
		f := &r.Enforcement.Results[i]
		m.quantiles(EnforcementWords(f.Change, false), f.Backend, f.First)
		m.quantiles(EnforcementWords(f.Change, true), f.Backend, f.Last)
	}
	return m.all
}

// PacketsMetrics are those of packets.
func (r *Report) PacketsMetrics() []Metric {
	m := &metrics{loop: r.Calibration.Median()}
	if r.Packets == nil {
		return nil
	}
	for i := range r.Packets.Results {
		m.packets(&r.Packets.Results[i])
	}
	return m.all
}

// EnforcementWords describes the measurement of a change: until the first packet
// finds it, or until all do.
func EnforcementWords(c Change, all bool) string {
	if all {
		return "packets " + string(c) + ", until all are"
	}
	return "packets " + string(c) + ", until the first is"
}

// PacketsWords describes a kind of traffic at a point.
func PacketsWords(kind TrafficKind, at workload.Point) string {
	words := map[TrafficKind]string{Connections: "new TCP connections", ParallelConnections: "new TCP connections in parallel", RoundTrips: "TCP round trips", Stream: "TCP stream"}
	return words[kind] + ", " + at.String()
}

// packets adds the figures of one kind of traffic.
func (m *metrics) packets(f *PacketsResult) {
	what, rate := PacketsWords(f.Kind, f.At), PerSecond
	if f.Kind == Stream {
		rate = BitsPerS
	}
	m.add(what, f.Backend, Rate, rate, f.PerSecond)
	m.add(what, f.Backend, First, Seconds, f.First)
	m.quantiles(what, f.Backend, f.Latency)
	m.add(what, f.Backend, CPUEach, PerPacket, f.CPUPerPacket)
	if f.Kind == Stream {
		m.add(what, f.Backend, CPUEachGB, PerGB, f.CPUPerOperation)
	}
}

// result adds the figures of one case.
func (m *metrics) result(f *Result) {
	what := Words(f.Case)
	switch f.Case {
	case worker.ToolLoad:
		return // it is not ours to be faster or slower
	case worker.FirstLoad, worker.Restart, worker.Recheck, worker.ManifestsRead:
		m.add(what, f.Backend, Wall, Seconds, f.Wall)
		m.add(what, f.Backend, PeakRSS, Bytes, f.PeakRSS)
		m.add(what, f.Backend, SwitchRSS, Bytes, f.SwitchPeakRSS)
	case worker.Idle:
	default:
		m.add(what, f.Backend, Mean, Seconds, f.Wall)
		m.quantiles(what, f.Backend, f.Latency)
	}
	if len(f.CPU) > 0 {
		m.add(what, f.Backend, CPU, Seconds, f.CPU)
		// By the loops around each turn: nearer than that of the whole run.
		m.all[len(m.all)-1].OfLoop = f.CPUOfLoop
	}
	if f.Case == worker.Idle {
		return
	}
	m.add(what, f.Backend, Writes, Times, f.Writes)
	var programs measure.Series
	for i := range min(len(f.Saves), len(f.Restores)) {
		programs = append(programs, f.Saves[i]+f.Restores[i])
	}
	if programs.Max() > 0 {
		m.add(what, f.Backend, Programs, Times, programs)
	}
}
