package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/bench"
	"github.com/felixlike/felixlike/bench/worker"
)

// sentence says which backend something costs least with.
type sentence struct{ What, Text string }

// headline is a figure that the summary tells of.
type headline struct {
	what string
	bench.Kind
	words string
}

// headlines are those of the summary; of each, what was measured is told.
func headlines() []headline {
	return []headline{
		{bench.Words(worker.FirstLoad), bench.CPU, "First load, CPU"},
		{bench.Words(worker.Restart), bench.CPU, "Restart with nothing changed, CPU"},
		{bench.Words(worker.FirstLoad), bench.PeakRSS, "First load, memory"},
		{bench.Words(worker.RuleChanged), bench.Mean, "One rule of a policy changed, until it is in force"},
		{bench.Words(worker.ElementAdded), bench.Mean, "One pod joins a group, until it is in force"},
		{bench.Words(worker.EndpointAdded), bench.Mean, "One endpoint added, until it is in force"},
		{bench.Words(worker.ForeignRule), bench.Mean, "A rule that another program deleted, until it is back"},
	}
}

// summary compares the backends in what matters most.
func summary(r *bench.Report) []sentence {
	var all []sentence
	for _, h := range headlines() {
		if of := measured(r, h); len(of) > 0 {
			all = append(all, sentence{h.words, compared(of)})
		}
	}
	return all
}

// measured returns what backends have of a headline.
func measured(r *bench.Report, h headline) []bench.Metric {
	var of []bench.Metric
	for _, m := range r.Metrics() {
		if m.What == h.what && m.Kind == h.Kind && m.Value > 0 && slices.Contains(r.Backends, m.Backend) {
			of = append(of, m)
		}
	}
	return of
}

// compared says who is best, and by how much the others are not.
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
		text = fmt.Sprintf("%s takes %s; no other backend was measured", best.Backend, printed(best))
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
func overlap(a, b bench.Series) bool { return a.Min() <= b.Max() && b.Min() <= a.Max() }

// times prints a ratio in as many digits as count.
func times(ratio float64) string {
	if ratio >= 10 {
		return fmt.Sprintf("%.0f times", ratio)
	}
	return fmt.Sprintf("%.2g times", ratio)
}
