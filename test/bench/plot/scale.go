package plot

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// scale is from values, in the unit of an axis, to places.
type scale struct {
	log      bool
	low, top float64
	from, to float64
}

// Values beyond these were not measured by anything.
const (
	smallest = 1e-12
	largest  = 1e15
)

// newScale returns one with all values in it, and whole steps as its ends.
func newScale(a Axis, values []float64, from, to float64) scale {
	s := scale{log: a.Log, from: from, to: to, low: math.Inf(1), top: math.Inf(-1)}
	for _, v := range values {
		v *= a.Scale
		if s.log && v < smallest || v > largest {
			continue // it has no place there
		}
		s.low, s.top = min(s.low, v), max(s.top, v)
	}
	switch {
	case s.low > s.top, s.top <= 0: // nothing to see
		s.low, s.top = 1, 10
	case s.log:
		s.low, s.top = stepBelow(s.low), stepAbove(s.top)
		if s.low == s.top {
			s.low, s.top = stepBelow(s.low*0.99), stepAbove(s.top*1.01)
		}
	default:
		step := wholeStep(s.top / 6)
		s.low, s.top = 0, step*math.Ceil(s.top/step*1.02)
	}
	return s
}

// at returns the place of a value; one that has none is at the end.
func (s scale) at(v float64) float64 {
	share := (v - s.low) / (s.top - s.low)
	if s.log {
		share = math.Log(max(v, s.low)/s.low) / math.Log(s.top/s.low)
	}
	return s.from + min(1, max(0, share))*(s.to-s.from)
}

// ticks returns the values to write at the axis: as many as the widths of their texts
// allow. room returns the width of a text.
func (s scale) ticks(room func(text string) float64) []float64 {
	for _, all := range s.candidates() {
		apart := true
		for i := 1; i < len(all); i++ {
			need := (room(label(all[i])) + room(label(all[i-1]))) / 2
			apart = apart && math.Abs(s.at(all[i])-s.at(all[i-1])) >= need
		}
		if apart {
			return all
		}
	}
	return []float64{s.low, s.top}
}

// candidates are sets of ticks, from the most to the fewest.
func (s scale) candidates() [][]float64 {
	var all [][]float64
	if !s.log {
		for _, parts := range []float64{8, 5, 4, 2} {
			step := wholeStep(s.top / parts)
			var some []float64
			for i := 0; float64(i)*step <= s.top*1.0001; i++ {
				some = append(some, float64(i)*step)
			}
			all = append(all, some)
		}
		return all
	}
	for _, of := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
		var some []float64
		for decade := math.Floor(math.Log10(s.low)); decade <= math.Log10(s.top)+1e-9; decade++ {
			for _, k := range of {
				if v := k * math.Pow(10, decade); v >= s.low*0.9999 && v <= s.top*1.0001 {
					some = append(some, v)
				}
			}
		}
		if len(some) > 1 {
			all = append(all, some)
		}
	}
	return all
}

// wholeStep returns the 1, 2 or 5 of a decade at or above a value.
func wholeStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	return stepAbove(v)
}

// stepAbove and stepBelow return the nearest 1, 2 or 5 of a decade.
func stepAbove(v float64) float64 {
	for _, s := range steps(v) {
		if s >= v*0.9999 {
			return s
		}
	}
	return v
}

func stepBelow(v float64) float64 {
	for _, s := range slices.Backward(steps(v)) {
		if s <= v*1.0001 {
			return s
		}
	}
	return v
}

// steps returns those around a value.
func steps(v float64) []float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	return []float64{decade / 2, decade, 2 * decade, 5 * decade, 10 * decade, 20 * decade}
}

// label prints the value of a tick.
func label(v float64) string {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if short := strconv.FormatFloat(v, 'g', 6, 64); !strings.Contains(short, "e") {
		text = short // without the rest of the binary fraction
	}
	whole, fraction, found := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if found {
		whole += "." + fraction
	}
	return whole
}
