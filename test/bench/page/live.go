package page

import (
	"slices"

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
	of := func(label string, row func(f livebench.Result) (plot.Row, bool)) plot.Group {
		return group(r, label, func(b string) (plot.Row, bool) {
			i := slices.IndexFunc(r.Live.Results, func(f livebench.Result) bool { return f.Backend == b })
			if i < 0 {
				return plot.Row{}, false
			}
			return row(r.Live.Results[i])
		})
	}
	series := func(label string, values func(f livebench.Result) measure.Series) plot.Group {
		return of(label, func(f livebench.Result) (plot.Row, bool) { return seriesRow(values(f)) })
	}
	return []plot.Figure{
		{
			Name: "live-cpu", Title: "Node " + r.Live.Node + ": CPUs in use", Caption: "The agent with the programs that it starts. " + whiskers,
			Body: &plot.Dots{
				Series: backends(r), Axis: plot.Axis{Label: "CPUs (log scale)", Scale: 1, Log: true, Print: bench.Times.Print},
				Groups: []plot.Group{
					series("agent", func(f livebench.Result) measure.Series { return f.AgentCPU }),
					series("ovs-vswitchd", func(f livebench.Result) measure.Series { return f.SwitchCPU }),
					series("the whole machine", func(f livebench.Result) measure.Series { return f.CPU }),
				},
			},
		},
		{
			Name: "live-memory", Title: "Node " + r.Live.Node + ": memory", Caption: "At the end of each turn. " + whiskers,
			Body: &plot.Dots{
				Series: backends(r), Axis: megabytes("RSS, MB"),
				Groups: []plot.Group{
					series("agent", func(f livebench.Result) measure.Series { return f.AgentRSS }),
					series("ovs-vswitchd", func(f livebench.Result) measure.Series { return f.SwitchRSS }),
				},
			},
		},
		{
			Name: "live-connections", Title: "Node " + r.Live.Node + ": new connections between two pods", Caption: "Over all rounds.",
			Body: &plot.Dots{
				Series: backends(r), Axis: milliseconds("time, ms (log scale)"), First: "p50", Second: "p99",
				Groups: []plot.Group{of(r.Live.From+" to "+r.Live.To, func(f livebench.Result) (plot.Row, bool) { return quantileRow(f.Connections) })},
			},
		},
	}
}
