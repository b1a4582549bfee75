package compare

import (
	"fmt"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/felixlike/felixlike/test/measure"
)

const (
	// alpha is the probability that the test sees a change without one.
	alpha = 0.05
	// enoughRounds is the least number of rounds of both for a change at that level:
	// with four and four, the least p is 0.029, with three and three 0.1.
	enoughRounds = 4
)

// judgement is about one pair of metrics.
type judgement struct {
	// judged is false where there is too little to judge by.
	judged, changed bool
	// how names the method.
	how string
}

// judge separates a change from noise. A change is at least the threshold, as
// a part of the lower value. With enough rounds Mann and Whitney's test must see
// it as well, as in benchstat; with fewer, the nearest two rounds have to be apart
// by the threshold: by chance, ranges do not meet one time in ten.
func judge(before, after measure.Series, threshold float64) judgement {
	rounds := fmt.Sprintf("%d+%d rounds", len(before), len(after))
	if len(before) < 2 || len(after) < 2 {
		return judgement{how: "no rounds to judge by"}
	}
	far := apart(before.Median(), after.Median(), threshold)
	if len(before) < enoughRounds || len(after) < enoughRounds {
		gap := apart(before.Max(), after.Min(), threshold) && before.Max() < after.Min() ||
			apart(after.Max(), before.Min(), threshold) && after.Max() < before.Min()
		return judgement{judged: true, changed: far && gap, how: "ranges, " + rounds}
	}
	thresholds := benchmath.Thresholds{CompareAlpha: alpha}
	sample := func(s measure.Series) *benchmath.Sample { return benchmath.NewSample(slices.Clone(s), &thresholds) }
	c := benchmath.AssumeNothing.Compare(sample(before), sample(after))
	return judgement{judged: true, changed: far && c.P < alpha, how: fmt.Sprintf("p=%.3f, %s", c.P, rounds)}
}

// apart reports whether two values differ by a part of the lower one.
func apart(a, b, threshold float64) bool {
	low, high := min(a, b), max(a, b)
	return high > low && high >= low*(1+threshold)
}
