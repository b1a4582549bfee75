package page

import (
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/plot"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
)

// packets are the figures of packets between pods, by the points of a run. They have a curve a backend: between two
// nodes a backend has one in each traffic mode, and only the tables have these.
func packets(r *bench.Report) []plot.Figure {
	if r.Packets == nil || r.Packets.Nodes > 1 {
		return nil
	}
	rate := func(f *bench.PacketsResult) measure.Series { return f.PerSecond }
	p50 := func(f *bench.PacketsResult) measure.Series { return f.Latency.P50Rounds }
	p99 := func(f *bench.PacketsResult) measure.Series { return f.Latency.P99Rounds }
	cpu := func(f *bench.PacketsResult) measure.Series { return f.CPUPerPacket }
	perGB := func(f *bench.PacketsResult) measure.Series { return f.CPUPerOperation }
	perPacket := plot.Axis{Label: "CPU time of the machine, µs a packet", Scale: 1e6, Print: bench.PerPacket.Print}
	var all []plot.Figure
	for _, f := range []struct {
		name, title, caption string
		kind                 bench.TrafficKind
		axis                 plot.Axis
		of                   func(*bench.PacketsResult) measure.Series
	}{
		{
			"connections", "New TCP connections", "One after the other; more is better. " + whiskers, bench.Connections,
			plot.Axis{Label: "connections/s", Scale: 1, Print: bench.PerSecond.Print},
			rate,
		},
		{
			"connection-first", "The first TCP connection", "The first after backend or policies were changed: nothing is cached of its way. " + whiskers, bench.Connections,
			milliseconds("time, ms (log scale)"), func(f *bench.PacketsResult) measure.Series { return f.First },
		},
		{"connection-p50", "A new TCP connection: p50", "Half of them take no longer. " + whiskers, bench.Connections, milliseconds("time, ms (log scale)"), p50},
		{"connection-p99", "A new TCP connection: p99", "99 of 100 take no longer. " + whiskers, bench.Connections, milliseconds("time, ms (log scale)"), p99},
		{"connection-cpu", "New TCP connections: CPU time of a packet", "Sender and receiver are in it, as they are in the floor. " + whiskers, bench.Connections, perPacket, cpu},
		{
			"parallel-connections", "New TCP connections in parallel", fmt.Sprintf("%d clients of one pod at a time; more is better. ", bench.ParallelClients) + whiskers, bench.ParallelConnections,
			plot.Axis{Label: "connections/s", Scale: 1, Print: bench.PerSecond.Print},
			rate,
		},
		{"round-trip-p50", "A TCP round trip: p50", "Half of them take no longer. " + whiskers, bench.RoundTrips, milliseconds("time, ms (log scale)"), p50},
		{"round-trip-p99", "A TCP round trip: p99", "99 of 100 take no longer. " + whiskers, bench.RoundTrips, milliseconds("time, ms (log scale)"), p99},
		{"round-trip-cpu", "TCP round trips: CPU time of a packet", "Sender and receiver are in it, as they are in the floor. " + whiskers, bench.RoundTrips, perPacket, cpu},
		{
			"throughput", "One TCP stream: throughput", "More is better. " + whiskers, bench.Stream,
			plot.Axis{Label: "Mbit/s", Scale: 1e-6, Print: bench.BitsPerS.Print},
			rate,
		},
		{
			"stream-cpu", "One TCP stream: CPU time", "Segments that an interface does not have to cut count as one packet: a GB is the same for all. " + whiskers, bench.Stream,
			plot.Axis{Label: "CPU time of the machine, s a GB", Scale: 1, Print: bench.PerGB.Print},
			perGB,
		},
	} {
		// Earlier reports do not have every kind.
		if !slices.ContainsFunc(r.Packets.Results, func(p bench.PacketsResult) bool { return p.Kind == f.kind }) {
			continue
		}
		all = append(all, plot.Figure{Name: f.name, Title: f.title, Caption: f.caption, Body: lines(r, f.kind, f.axis, f.of)})
	}
	return all
}

// lines has a curve for each backend, and the floor.
func lines(r *bench.Report, kind bench.TrafficKind, axis plot.Axis, of func(*bench.PacketsResult) measure.Series) *plot.Lines {
	l := &plot.Lines{
		Series: backends(r), Axis: axis, Heads: [2]string{"policies", "peers"},
		Over: "number of policies that apply, and of peers allowed", Steps: steps(r.Packets.Points),
	}
	for _, b := range r.Backends {
		curve := plot.Curve{}
		for i, at := range r.Packets.Points {
			if f := r.Packets.Find(b, at, kind); f != nil && len(of(f)) > 0 {
				curve[i] = valueOf(of(f))
			}
		}
		l.Curves = append(l.Curves, curve)
	}
	if f := r.Packets.Find(bench.NoBackend, workload.Point{}, kind); f != nil && len(of(f)) > 0 {
		l.Floor = &plot.Floor{Name: "floor: no agent, no policy", Value: valueOf(of(f))}
	}
	return l
}

// steps are the points of a run. A line leads to more policies, not to other
// peers.
func steps(points []workload.Point) []plot.Step {
	var all []plot.Step
	for i, at := range points {
		apart := i > 0 && (at.Policies <= points[i-1].Policies || points[i-1].Policies > 0 && at.Peers != points[i-1].Peers)
		all = append(all, plot.Step{Upper: bench.Times.Print(float64(at.Policies)), Lower: bench.Times.Print(float64(at.Peers)), Apart: apart})
	}
	return all
}

// enforcement is the figure of the time from a change until packets find it.
func enforcement(r *bench.Report) []plot.Figure {
	if r.Enforcement == nil {
		return nil
	}
	d := &plot.Dots{Series: backends(r), Axis: milliseconds("time, ms (log scale)"), First: "p50", Second: "p99"}
	for _, c := range bench.Changes() {
		for _, all := range []bool{false, true} {
			g := group(r, bench.EnforcementWords(c, all), func(b string) (plot.Row, bool) {
				switch f := r.Enforcement.Find(b, c); {
				case f == nil:
					return plot.Row{}, false
				case all:
					return quantileRow(f.Last)
				default:
					return quantileRow(f.First)
				}
			})
			// Earlier reports do not have every change.
			if len(g.Rows) > 0 {
				d.Groups = append(d.Groups, g)
			}
		}
	}
	caption := "From the moment before the object is written."
	if quiet := r.Enforcement.Quiet; quiet > 0 {
		caption += " For " + bench.Seconds.Print(quiet) + " of it the datastore waits on purpose for further changes."
	}
	return []plot.Figure{{Name: "enforcement", Title: "A policy or a label changed: until packets find it", Body: d, Caption: caption}}
}
