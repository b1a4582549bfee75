package page

import (
	"slices"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/plot"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/measure"
	"github.com/felixlike/felixlike/test/workloads"
)

// look returns that of a backend: the same in every report.
func look(backend string) int {
	known := []string{config.NFTables, config.IPTablesLegacy, config.IPTablesNFT, config.OpenFlow, worker.NFTablesMaps}
	if i := slices.Index(known, backend); i >= 0 {
		return i
	}
	return len(known)
}

// backends are the series of a report, in its order.
func backends(r *bench.Report) []plot.Series {
	var all []plot.Series
	for _, b := range r.Backends {
		all = append(all, plot.Series{Name: b, Look: look(b)})
	}
	return all
}

// valueOf is the median of a series, with its ends.
func valueOf(s measure.Series) plot.Value {
	return plot.Value{At: s.Median(), Low: s.Min(), High: s.Max()}
}

// group has a row for each backend that was measured.
func group(r *bench.Report, label string, of func(backend string) (plot.Row, bool)) plot.Group {
	g := plot.Group{Label: label}
	for i, b := range r.Backends {
		if row, ok := of(b); ok {
			row.Series = i
			g.Rows = append(g.Rows, row)
		}
	}
	return g
}

// groups has one for each case that was measured.
func groups(r *bench.Report, cases []worker.Case, of func(f *bench.Result) (plot.Row, bool)) []plot.Group {
	var all []plot.Group
	for _, c := range cases {
		g := group(r, bench.Words(c), func(b string) (plot.Row, bool) {
			f := r.Find(b, c)
			if f == nil {
				return plot.Row{}, false
			}
			return of(f)
		})
		if len(g.Rows) > 0 {
			all = append(all, g)
		}
	}
	return all
}

// seriesRow is a row of a series, if there is one.
func seriesRow(s measure.Series) (plot.Row, bool) { return plot.Row{First: valueOf(s)}, s.Max() > 0 }

// quantileRow is a row of a latency, if there is one.
func quantileRow(l measure.Latency) (plot.Row, bool) {
	one := func(v float64) plot.Value { return plot.Value{At: v, Low: v, High: v} }
	return plot.Row{First: one(l.P50), Second: one(l.P99)}, l.Count > 0
}

const whiskers = "Marks are medians of the rounds, whiskers go from the lowest round to the highest."

func loads(r *bench.Report) []plot.Figure {
	cases := []worker.Case{worker.FirstLoad, worker.ToolLoad, worker.Restart, worker.Recheck}
	figure := func(name, title, what, caption string, of func(f *bench.Result) measure.Series) plot.Figure {
		most := 0.0
		all := groups(r, cases, func(f *bench.Result) (plot.Row, bool) {
			most = max(most, of(f).Median())
			return seriesRow(of(f))
		})
		axis := seconds(what + ", s (log scale)")
		if most < 1 {
			axis = milliseconds(what + ", ms (log scale)")
		}
		return plot.Figure{Name: name, Title: title, Caption: caption, Body: &plot.Dots{Series: backends(r), Axis: axis, Groups: all}}
	}
	return []plot.Figure{
		figure("load-cpu", "Everything at once: CPU time", "CPU time",
			"From the complete model to programmed; below the first load, the kernel's own tools for the same state. "+whiskers,
			func(f *bench.Result) measure.Series { return f.CPU }),
		figure("load-wall", "Everything at once: time", "wall time", whiskers,
			func(f *bench.Result) measure.Series { return f.Wall }),
	}
}

func changes(r *bench.Report) []plot.Figure {
	quantiles := func(f *bench.Result) (plot.Row, bool) { return quantileRow(f.Latency) }
	return []plot.Figure{
		{
			Name: "change-latency", Title: "One change: from the object to the kernel's commit",
			Caption: "Half of the changes take no longer than the filled mark, 99 of 100 no longer than the open one; over all rounds.",
			Body: &plot.Dots{
				Series: backends(r), Axis: milliseconds("time, ms (log scale)"), First: "p50", Second: "p99",
				Groups: groups(r, bench.ChangeCases(), quantiles),
			},
		},
		{
			Name: "change-cpu", Title: "One change: CPU time", Caption: "CPU time for each change, of the agent and the programs that it starts. " + whiskers,
			Body: &plot.Dots{
				Series: backends(r), Axis: milliseconds("CPU time, ms (log scale)"),
				Groups: groups(r, bench.ChangeCases(), func(f *bench.Result) (plot.Row, bool) { return seriesRow(f.CPU) }),
			},
		},
		{
			Name: "foreign-change", Title: "A foreign change: until it is put right",
			Caption: "From the other program's request to the repair's commit. Other backends are not notified of foreign changes: the next full re-check finds them.",
			Body: &plot.Dots{
				Series: backends(r), Axis: milliseconds("time, ms (log scale)"), First: "p50", Second: "p99",
				Groups: groups(r, bench.ForeignCases(), quantiles),
			},
		},
	}
}

func memory(r *bench.Report) []plot.Figure {
	cases := []worker.Case{worker.FirstLoad, worker.Restart}
	of := groups(r, cases, func(f *bench.Result) (plot.Row, bool) { return seriesRow(f.PeakRSS) })
	inSwitch := groups(r, cases, func(f *bench.Result) (plot.Row, bool) { return seriesRow(f.SwitchPeakRSS) })
	for _, g := range inSwitch {
		g.Label += ": ovs-vswitchd"
		of = append(of, g)
	}
	return []plot.Figure{{
		Name: "memory", Title: "Memory: the most that a process has had",
		Caption: "Peak RSS, with the benchmark's own objects in it. " + whiskers,
		Body:    &plot.Dots{Series: backends(r), Axis: megabytes("peak RSS, MB"), Groups: of},
	}}
}

func engine(r *bench.Report) []plot.Figure {
	d := &plot.Dots{
		Series: []plot.Series{{Name: "all pods on this node", Look: 4}, {Name: "pods on 1,000 nodes", Look: 5}},
		Axis:   seconds("CPU time, s (log scale)"),
	}
	for i := range r.Engine {
		e := &r.Engine[i]
		row := plot.Row{First: valueOf(e.EngineCPU)}
		if e.Placement != workloads.EveryPodLocal {
			row.Series = 1
		}
		if n := len(d.Groups); n == 0 || d.Groups[n-1].Label != e.Workload {
			d.Groups = append(d.Groups, plot.Group{Label: e.Workload})
		}
		g := &d.Groups[len(d.Groups)-1]
		g.Rows = append(g.Rows, row)
	}
	return []plot.Figure{{
		Name: "engine", Title: "Policy engine: a whole cluster's objects to a node's model",
		Caption: "CPU time of the engine alone, for every backend the same. " + whiskers, Body: d,
	}}
}

// The axes. Each prints values as the tables do.
func seconds(label string) plot.Axis {
	return plot.Axis{Label: label, Scale: 1, Log: true, Print: bench.Seconds.Print}
}

func milliseconds(label string) plot.Axis {
	return plot.Axis{Label: label, Scale: 1e3, Log: true, Print: bench.Seconds.Print}
}

func megabytes(label string) plot.Axis {
	return plot.Axis{Label: label, Scale: 1e-6, Print: bench.Bytes.Print}
}
