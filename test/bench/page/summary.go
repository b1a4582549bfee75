package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/internal/measure"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// sentence names the backend with the lowest cost of something.
type sentence struct{ What, Text string }

// headline is a figure of the summary: of its kinds, the first that
// was measured in rounds.
type headline struct {
	words string
	what  string
	kinds []bench.Kind
}

// headlines are those of the summary; the summary has the measured ones.
func headlines(r *bench.Report) []headline {
	var all []headline
	if p := r.Packets; p != nil && len(p.Points) > 0 {
		at := slices.MaxFunc(p.Points, func(a, b workload.Point) int { return cmp.Compare(a.Policies, b.Policies) })
		all = append(all,
			headline{"New TCP connections with " + at.String(), bench.PacketsWords(bench.Connections, at), []bench.Kind{bench.Rate}},
			headline{"A TCP round trip with " + at.String() + ", p50", bench.PacketsWords(bench.RoundTrips, at), []bench.Kind{bench.P50}},
			headline{"Throughput of a TCP stream with " + at.String(), bench.PacketsWords(bench.Stream, at), []bench.Kind{bench.Rate}},
		)
	}
	typical := []bench.Kind{bench.P50, bench.Mean}
	return append(all,
		headline{"A policy that denies, until the first packet finds it", bench.EnforcementWords(bench.Denied, false), typical},
		headline{"First load, CPU", bench.Words(worker.FirstLoad), []bench.Kind{bench.CPU}},
		headline{"Restart with nothing changed, CPU", bench.Words(worker.Restart), []bench.Kind{bench.CPU}},
		headline{"First load, memory", bench.Words(worker.FirstLoad), []bench.Kind{bench.PeakRSS}},
		headline{"One rule of a policy changed, until it is in force", bench.Words(worker.RuleChanged), typical},
		headline{"One pod joins a group, until it is in force", bench.Words(worker.ElementAdded), typical},
		headline{"One endpoint added, until it is in force", bench.Words(worker.EndpointAdded), typical},
		headline{"A rule that another program deleted, until it is back", bench.Words(worker.ForeignRule), typical},
	)
}

// summary compares the backends in the most important figures.
func summary(r *bench.Report) []sentence {
	var all []sentence
	for _, h := range headlines(r) {
		if of := measured(r, h); len(of) > 0 {
			all = append(all, sentence{h.words, compared(of) + floorOf(r, of[0])})
		}
	}
	return all
}

// measured returns the backends' metrics for a headline.
func measured(r *bench.Report, h headline) []bench.Metric {
	for _, k := range h.kinds {
		var of []bench.Metric
		for _, m := range r.Metrics() {
			if m.What == h.what && m.Kind == k && len(m.Rounds) > 0 && m.Value > 0 && slices.Contains(r.Backends, m.Backend) {
				of = append(of, m)
			}
		}
		if len(of) > 0 {
			return of
		}
	}
	return nil
}

// floorOf describes the same figure without an agent, if it was measured.
func floorOf(r *bench.Report, of bench.Metric) string {
	if r.Packets == nil {
		return ""
	}
	for _, kind := range bench.TrafficKinds() {
		at := bench.PacketsWords(kind, workload.Point{})
		begin, _, _ := strings.Cut(at, ",")
		if !strings.HasPrefix(of.What, begin+",") {
			continue
		}
		for _, m := range r.Metrics() {
			if m.Backend == bench.NoBackend && m.What == at && m.Kind == of.Kind {
				return " Without agent and policy: " + printed(m) + "."
			}
		}
	}
	return ""
}

// compared names the best backend, and the distance of the others.
func compared(of []bench.Metric) string {
	slices.SortStableFunc(of, func(a, b bench.Metric) int {
		if a.MoreIsBetter() {
			a, b = b, a
		}
		return cmp.Compare(a.Value, b.Value)
	})
	best := of[0]
	most, far := "takes the least", "%s takes %s as much (%s)"
	if best.MoreIsBetter() {
		most, far = "does the most", "%s does %s as much (%s)"
	}
	text := fmt.Sprintf("%s %s, %s", best.Backend, most, printed(best))
	if len(of) == 1 {
		text = fmt.Sprintf("%s takes %s; of no other backend was it measured", best.Backend, printed(best))
	}
	for _, m := range of[1:] {
		if overlap(best.Rounds, m.Rounds) {
			text += fmt.Sprintf("; %s is within noise of it (%s)", m.Backend, printed(m))
			continue
		}
		text += "; " + fmt.Sprintf(far, m.Backend, times(m.Value/best.Value), printed(m))
	}
	return text + "."
}

// printed is the value of a metric, with its unit on the same line.
func printed(m bench.Metric) string { return strings.ReplaceAll(m.Unit.Print(m.Value), " ", "\u00a0") }

// overlap reports whether rounds of one are among those of the other.
func overlap(a, b measure.Series) bool { return a.Min() <= b.Max() && b.Min() <= a.Max() }

// times prints a ratio in as many digits as count.
func times(ratio float64) string {
	switch {
	case ratio >= 10:
		return fmt.Sprintf("%.0f times", ratio)
	case ratio >= 2 || ratio < 0.5:
		return fmt.Sprintf("%.2g times", ratio)
	}
	return fmt.Sprintf("%.2f times", ratio)
}
