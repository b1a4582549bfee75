package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// PacketsReport is what a run over packets has measured.
type PacketsReport struct {
	Version int `json:"version"`
	// Command reproduces the run.
	Command  string    `json:"command"`
	Started  time.Time `json:"started"`
	Took     float64   `json:"tookSeconds"`
	Rounds   int       `json:"rounds"`
	Duration float64   `json:"durationSeconds"`
	Policies int       `json:"policies"`
	// Datapath is the bridge's: what the userspace one measures says nothing of
	// the kernel's.
	Datapath string          `json:"datapath"`
	Machine  Machine         `json:"machine"`
	Backends []string        `json:"backends"`
	Results  []PacketsResult `json:"results"`
}

// PacketsResult is one kind of traffic under one backend.
type PacketsResult struct {
	Backend string `json:"backend"`
	Kind    string `json:"kind"`
	// PerSecond is connections, round trips, or bits of a stream.
	PerSecond Series `json:"perSecond"`
	// SwitchCPU is the CPU time of the switch's daemon as a share of the time
	// that was measured.
	SwitchCPU Series  `json:"switchCPUShare"`
	Latency   Latency `json:"latency"`
}

// packetsResults are the results while they come in.
type packetsResults []*packetsResult

type packetsResult struct {
	PacketsResult
	latencies *latencies
}

func newPacketsResults(backends []string) packetsResults {
	var all packetsResults
	for _, kind := range trafficKinds() {
		for _, b := range backends {
			all = append(all, &packetsResult{PacketsResult: PacketsResult{Backend: b, Kind: string(kind)}, latencies: newLatencies()})
		}
	}
	return all
}

func (all packetsResults) add(backend string, kind trafficKind, s sample) error {
	for _, r := range all {
		if r.Backend != backend || r.Kind != string(kind) {
			continue
		}
		count := float64(len(s.latencies))
		if kind == stream {
			count = float64(8 * s.bytes)
		}
		r.PerSecond = append(r.PerSecond, count/s.seconds)
		r.SwitchCPU = append(r.SwitchCPU, s.switchCPU/s.seconds)
		return r.latencies.record(s.latencies)
	}
	return fmt.Errorf("no results of %s, %s", backend, kind)
}

func (all packetsResults) collect() []PacketsResult {
	var out []PacketsResult
	for _, r := range all {
		r.Latency = r.latencies.latency()
		out = append(out, r.PacketsResult)
	}
	return out
}

// Text writes the report as aligned tables.
func (r *PacketsReport) Text(w io.Writer) error { return r.document().writeText(w) }

// Markdown writes the report as a page.
func (r *PacketsReport) Markdown(w io.Writer) error { return r.document().writeMarkdown(w) }

// JSON writes the report as data.
func (r *PacketsReport) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *PacketsReport) document() *document {
	d := &document{title: "Packets under " + strings.Join(r.Backends, ", ") + ", datapath " + r.Datapath}
	intro := []string{
		fmt.Sprintf("Two pods of one node; %d policies of %d rules apply to the server, and the last rule allows the client. "+
			"The backend is changed on the live node between the turns.", r.Policies, rulesEach),
		fmt.Sprintf("%s, %s. Medians of the rounds of %s each, with the lowest and the highest; latencies over all rounds.",
			rounds(r.Rounds), r.Started.Format(time.DateOnly), duration(r.Duration)),
	}
	if r.Datapath == "netdev" {
		intro = append(intro, "The datapath is Open vSwitch's own in userspace, with connection tracking of its own: these figures "+
			"compare what the backends ask of it, and say nothing about the speed of the kernel's datapath.")
	}
	d.sections = append(d.sections, section{heading: "What this is", text: intro})
	for _, kind := range trafficKinds() {
		d.sections = append(d.sections, r.section(kind))
	}
	d.sections = append(d.sections, r.Machine.section(r.Command, r.Started, r.Took))
	return d
}

func (r *PacketsReport) section(kind trafficKind) section {
	s := section{left: 1, header: []string{"backend", "per second", "of " + r.Backends[0], "p50", "p99", "max", "vswitchd, CPUs"}}
	unit := plain()
	switch kind {
	case connections:
		s.heading = "New TCP connections, one after the other"
	case roundTrips:
		s.heading = "Round trips of one byte on a TCP connection"
	case stream:
		s.heading, unit = "One TCP stream, one way", unitOfBits()
	}
	var first Series
	for _, f := range r.Results {
		if f.Kind != string(kind) {
			continue
		}
		if first == nil {
			first = f.PerSecond
		}
		row := []string{f.Backend, spread(f.PerSecond, unit), spread(f.PerSecond.over(first), multiples()), "", "", "", spread(f.SwitchCPU, plain())}
		if f.Latency.Count > 0 {
			for i, v := range []float64{f.Latency.P50, f.Latency.P99, f.Latency.Max} {
				row[3+i] = seconds(v).print(v)
			}
		}
		s.rows = append(s.rows, row)
	}
	return s
}

func unitOfBits() unit { return unit{" Mbit", 1e-6} }
