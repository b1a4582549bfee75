package compare

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/measure"
)

// Verdict is the judgement of a metric's change.
type Verdict string

// The verdicts.
const (
	Same   Verdict = "same"
	Better Verdict = "better"
	Worse  Verdict = "worse"
	// NotJudged is for metrics with too few rounds.
	NotJudged Verdict = "not judged"
)

// Change is one metric of both reports.
type Change struct {
	What    string     `json:"what"`
	Backend string     `json:"backend,omitempty"`
	Kind    bench.Kind `json:"kind"`
	Unit    bench.Unit `json:"unit"`
	// Old and New are as they were measured.
	Old float64 `json:"old"`
	New float64 `json:"new"`
	// Ratio is New as a multiple of Old, after the correction for the machine;
	// zero if Old is.
	Ratio   float64 `json:"ratio"`
	Verdict Verdict `json:"verdict"`
	// Words are the change in words: faster, more memory.
	Words string `json:"words"`
	// How names the method of the judgement.
	How string `json:"how"`
}

// Comparison is the result of Compare.
type Comparison struct {
	Threshold float64 `json:"threshold"`
	// LoopRatio is the calibration loop of New as a multiple of that of Old. Times are
	// corrected by it. Zero means no correction.
	LoopRatio float64 `json:"calibrationLoopRatio"`
	// Refused are the parts that cannot be compared, Warnings the other differences.
	Refused  []string `json:"refused,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Changes are all pairs: changed ones first, by size.
	Changes []Change `json:"changes"`
}

// Compare compares two reports. It returns an error that names the fields if
// nothing of them can be compared. Threshold is the least change to report.
func Compare(before, after *bench.Report, threshold float64) (*Comparison, error) {
	if !(threshold >= 0 && threshold < 100) {
		return nil, fmt.Errorf("threshold %v: must be 0 to 100 times the lower value", threshold)
	}
	c := &Comparison{Threshold: threshold}
	if a, b := before.Calibration.Median(), after.Calibration.Median(); a > 0 && b > 0 {
		c.LoopRatio = b / a
	}
	if math.IsInf(c.LoopRatio, 0) {
		return nil, fmt.Errorf("calibrationCPUSeconds: %v and %v cannot be of one loop", before.Calibration.Median(), after.Calibration.Median())
	}
	c.warn(before, after)
	for _, p := range parts() {
		was, is := p.metrics(before), p.metrics(after)
		switch differ := p.differ(before, after); {
		case len(was) == 0 && len(is) == 0:
		case len(was) == 0:
			c.Warnings = append(c.Warnings, p.name+": only in the new report")
		case len(is) == 0:
			c.Warnings = append(c.Warnings, p.name+": only in the old report")
		case len(differ) > 0:
			c.Refused = append(c.Refused, p.name+": "+strings.Join(differ, "; "))
		default:
			c.pair(was, is)
		}
	}
	if len(c.Changes) == 0 {
		return nil, errors.New(strings.Join(slices.Concat([]string{"nothing to compare"}, c.Refused, c.Warnings), "; "))
	}
	slices.SortStableFunc(c.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.rank(), a.rank()), cmp.Compare(b.size(), a.size()))
	})
	return c, nil
}

// pair compares the metrics that both have.
func (c *Comparison) pair(before, after []bench.Metric) {
	missing := map[string]int{}
	for _, m := range before {
		i := slices.IndexFunc(after, func(o bench.Metric) bool { return o.What == m.What && o.Backend == m.Backend && o.Kind == m.Kind })
		if i < 0 {
			missing["only in the old report"]++
			continue
		}
		c.Changes = append(c.Changes, c.change(m, after[i]))
	}
	for _, m := range after {
		if !slices.ContainsFunc(before, func(o bench.Metric) bool { return o.What == m.What && o.Backend == m.Backend && o.Kind == m.Kind }) {
			missing["only in the new report"]++
		}
	}
	for _, where := range []string{"only in the old report", "only in the new report"} {
		if n := missing[where]; n > 0 {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%d figures are %s", n, where))
		}
	}
}

// change compares one metric, by multiples of the calibration loop if both reports
// have them.
func (c *Comparison) change(before, after bench.Metric) Change {
	was, is := before.Rounds, after.Rounds
	if c.LoopRatio > 0 && len(before.OfLoop) == len(was) && len(after.OfLoop) == len(is) {
		was, is = before.OfLoop, after.OfLoop
	}
	out := Change{
		What: before.What, Backend: before.Backend, Kind: before.Kind, Unit: before.Unit,
		Old: before.Value, New: after.Value, Verdict: Same, Words: "within noise",
	}
	if ratio := is.Median() / was.Median(); was.Median() > 0 && !math.IsInf(ratio, 0) {
		out.Ratio = ratio
	}
	j := judge(was, is, c.Threshold)
	out.How = j.how
	switch {
	case !j.judged:
		out.Verdict, out.Words = NotJudged, string(NotJudged)
	case j.changed:
		more := is.Median() > was.Median()
		out.Verdict = Worse
		if more == before.MoreIsBetter() {
			out.Verdict = Better
		}
		out.Words = words(before, more)
	}
	return out
}

// words describes the increase (more) or decrease of a metric.
func words(m bench.Metric, more bool) string {
	one := func(less, most string) string {
		if more {
			return most
		}
		return less
	}
	switch m.Kind {
	case bench.CPU, bench.CPUEach, bench.CPUEachGB:
		return one("less CPU", "more CPU")
	case bench.PeakRSS, bench.SwitchRSS:
		return one("less memory", "more memory")
	case bench.Writes:
		return one("fewer writes", "more writes")
	case bench.Programs:
		return one("fewer programs", "more programs")
	case bench.Rate:
		return one("lower rate", "higher rate")
	}
	return one("faster", "slower")
}

// Changed reports whether anything has changed beyond noise.
func (c *Comparison) Changed() bool { return c.Count(Better)+c.Count(Worse) > 0 }

// Count returns the number of metrics with a verdict.
func (c *Comparison) Count(v Verdict) int {
	n := 0
	for _, k := range c.Changes {
		if k.Verdict == v {
			n++
		}
	}
	return n
}

// rank orders the changes: a higher one comes first.
func (k *Change) rank() int {
	switch k.Verdict {
	case Better, Worse:
		return 2
	case Same:
		return 1
	}
	return 0
}

// size is that of a change, in either direction. From nothing is the biggest.
func (k *Change) size() float64 {
	if k.Ratio <= 0 {
		if k.Old == k.New {
			return 0
		}
		return math.MaxFloat64
	}
	return math.Abs(math.Log(k.Ratio))
}

// warn adds the differences that leave doubt.
func (c *Comparison) warn(before, after *bench.Report) {
	var d differences
	was, is := before.Machine, after.Machine
	d.add("machine.cpu", was.CPU, is.CPU)
	d.add("machine.cores", was.Cores, is.Cores)
	d.add("machine.memory", was.Memory, is.Memory)
	d.add("machine.kernel", was.Kernel, is.Kernel)
	d.add("machine.system", was.System, is.System)
	d.add("machine.go", was.Go, is.Go)
	names := slices.Collect(maps.Keys(was.Tools))
	for name := range is.Tools {
		if _, known := was.Tools[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if was.Tools[name] != "" && is.Tools[name] != "" {
			d.add("machine.tools."+name, was.Tools[name], is.Tools[name])
		}
	}
	if before.Packets != nil && after.Packets != nil {
		d.add("packets.durationSeconds", before.Packets.Duration, after.Packets.Duration)
	}
	d.add("rounds", before.Rounds, after.Rounds)
	c.Warnings = append(c.Warnings, d...)
	for _, side := range []struct {
		name string
		of   measure.Machine
	}{{"old", was}, {"new", is}} {
		if side.of.Busy() {
			c.Warnings = append(c.Warnings, fmt.Sprintf("machine.loadBefore: %s on %d cores in the %s report: the machine was busy, and its figures are of little worth",
				side.of.LoadBefore, side.of.Cores, side.name))
		}
	}
	for _, side := range []struct {
		name      string
		its, that []string
	}{{"old", before.Backends, after.Backends}, {"new", after.Backends, before.Backends}} {
		alone := slices.DeleteFunc(slices.Clone(side.its), func(b string) bool { return slices.Contains(side.that, b) })
		if len(alone) > 0 {
			c.Warnings = append(c.Warnings, fmt.Sprintf("backends: %s only in the %s report", strings.Join(alone, ", "), side.name))
		}
	}
	if c.LoopRatio == 0 {
		c.Warnings = append(c.Warnings, "calibrationCPUSeconds: not in both reports: times are not corrected for the machine")
	}
}
