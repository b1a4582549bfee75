package page

import (
	"github.com/felixlike/felixlike/cmd/felixctl/livebench"
	"github.com/felixlike/felixlike/internal/measure"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/plot"
)

// live are the figures of a node that was watched.
func live(r *bench.Report) []plot.Figure {
	if r.Live == nil {
		return nil
	}
	group := func(label string, of func(f *livebench.Result) (plot.Row, bool)) plot.Group {
		g := plot.Group{Label: label}
		for i := range r.Live.Results {
			f := &r.Live.Results[i]
			row, ok := of(f)
			for n, b := range r.Backends {
				if ok && b == f.Backend {
					row.Series = n
					g.Rows = append(g.Rows, row)
				}
			}
		}
		return g
	}
	series := func(label string, of func(f *livebench.Result) measure.Series) plot.Group {
		return group(label, func(f *livebench.Result) (plot.Row, bool) { return seriesRow(of(f)) })
	}
	return []plot.Figure{
		{
			Name: "live-cpu", Title: "Node " + r.Live.Node + ": CPUs in use", Caption: "The agent with the programs that it starts. " + whiskers,
			Body: &plot.Dots{
				Series: backends(r), Axis: plot.Axis{Label: "CPUs (log scale)", Scale: 1, Log: true, Print: bench.Times.Print},
				Groups: []plot.Group{
					series("agent", func(f *livebench.Result) measure.Series { return f.AgentCPU }),
					series("ovs-vswitchd", func(f *livebench.Result) measure.Series { return f.SwitchCPU }),
					series("the whole machine", func(f *livebench.Result) measure.Series { return f.CPU }),
				},
			},
		},
		{
			Name: "live-memory", Title: "Node " + r.Live.Node + ": memory", Caption: "At the end of each turn. " + whiskers,
			Body: &plot.Dots{
				Series: backends(r), Axis: megabytes("RSS, MB"),
				Groups: []plot.Group{
					series("agent", func(f *livebench.Result) measure.Series { return f.AgentRSS }),
					series("ovs-vswitchd", func(f *livebench.Result) measure.Series { return f.SwitchRSS }),
				},
			},
		},
		{
			Name: "live-connections", Title: "Node " + r.Live.Node + ": new connections between two pods", Caption: "Over all rounds.",
			Body: &plot.Dots{
				Series: backends(r), Axis: milliseconds("time, ms (log scale)"), First: "p50", Second: "p99",
				Groups: []plot.Group{group(r.Live.From+" to "+r.Live.To, func(f *livebench.Result) (plot.Row, bool) { return quantileRow(f.Connections) })},
			},
		},
	}
}
