package bench

import (
	"cmp"
	"slices"

	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
)

// SummaryHeading is the heading of the first section, the summary.
const SummaryHeading = "Summary"

// bestMark marks the best of a row, and what the run cannot distinguish from it.
const bestMark = " ★"

// headline is a figure of the summary: of its kinds, the first that was measured in rounds.
type headline struct {
	words string
	what  string
	kinds []Kind
	// floor is the same operation without agent and policy, "" if nothing measures it.
	floor string
}

// headlines are those of the summary; the summary has the measured ones.
func headlines(r *Report) []headline {
	typical := []Kind{P50, Mean}
	all := []headline{
		{words: "first load, CPU", what: Words(worker.FirstLoad), kinds: []Kind{CPU}},
		{words: "first load, memory", what: Words(worker.FirstLoad), kinds: []Kind{PeakRSS}},
		{words: "restart with nothing changed, CPU", what: Words(worker.Restart), kinds: []Kind{CPU}},
		{words: "one rule of a policy changed, until it is in force", what: Words(worker.RuleChanged), kinds: typical},
		{words: "a policy that denies, until the first packet meets it", what: EnforcementWords(Denied, false), kinds: typical},
	}
	if p := r.Packets; p != nil && len(p.Points) > 0 {
		at := mostPolicies(p)
		for _, t := range []struct {
			words string
			of    TrafficKind
			kind  Kind
		}{{"new TCP connections", Connections, Rate}, {"TCP round trip, p50", RoundTrips, P50}, {"throughput of a TCP stream", Stream, Rate}} {
			all = append(all, headline{t.words + ", with " + at.String(), PacketsWords(t.of, at), []Kind{t.kind}, PacketsWords(t.of, workload.Point{})})
		}
	}
	return all
}

// mostPolicies returns the point with the most policies.
func mostPolicies(p *Packets) workload.Point {
	return slices.MaxFunc(p.Points, func(a, b workload.Point) int { return cmp.Compare(a.Policies, b.Policies) })
}

// summary has a row for each headline and a column for each backend.
func (r *Report) summary() measure.Section {
	s := measure.Section{Heading: SummaryHeading, Left: 1, Header: slices.Concat([]string{"what"}, r.Backends, []string{"no agent"})}
	metrics := r.Metrics()
	for _, h := range headlines(r) {
		of := measured(metrics, h, r.Backends)
		if len(of) == 0 {
			continue
		}
		row := []string{h.words}
		best := slices.MinFunc(of, func(a, b Metric) int {
			if a.MoreIsBetter() {
				a, b = b, a
			}
			return cmp.Compare(a.Value, b.Value)
		})
		for _, b := range r.Backends {
			row = append(row, cellOf(of, b, best))
		}
		floor := ""
		for _, m := range metrics {
			if h.floor != "" && m.Backend == NoBackend && m.What == h.floor && m.Kind == best.Kind {
				floor = m.Unit.Print(m.Value)
			}
		}
		s.Rows = append(s.Rows, append(row, floor))
	}
	if len(r.Backends) > 1 && len(s.Rows) > 0 {
		s.Text = []string{"Medians of the rounds." + bestMark + " marks the best of a row, and the backends that this run cannot distinguish from it, since their rounds overlap."}
	}
	return s
}

// measured returns the backends' metrics for a headline, at most one of each.
func measured(all []Metric, h headline, backends []string) []Metric {
	for _, k := range h.kinds {
		var of []Metric
		for _, m := range all {
			if m.What == h.what && m.Kind == k && len(m.Rounds) > 0 && m.Value > 0 && slices.Contains(backends, m.Backend) {
				of = append(of, m)
			}
		}
		if len(of) > 0 {
			return of
		}
	}
	return nil
}

// cellOf prints the figure of a backend, "" if it was not measured.
func cellOf(of []Metric, backend string, best Metric) string {
	i := slices.IndexFunc(of, func(m Metric) bool { return m.Backend == backend })
	if i < 0 {
		return ""
	}
	text := of[i].Unit.Print(of[i].Value)
	if len(of) > 1 && overlap(of[i].Rounds, best.Rounds) {
		text += bestMark
	}
	return text
}

// overlap reports whether rounds of one are among those of the other.
func overlap(a, b measure.Series) bool { return a.Min() <= b.Max() && b.Min() <= a.Max() }
