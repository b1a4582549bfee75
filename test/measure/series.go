package measure

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Series has one value a round.
type Series []float64

// Median returns the middle value, or zero if there is none.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Min returns the lowest value, or zero if there is none.
func (s Series) Min() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Min(s)
}

// Max returns the highest value, or zero.
func (s Series) Max() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s)
}

func (s Series) Sum() float64 {
	var sum float64
	for _, v := range s {
		sum += v
	}
	return sum
}

// Over returns the series divided by another, round by round.
func (s Series) Over(o Series) Series {
	var out Series
	for i := range min(len(s), len(o)) {
		if o[i] > 0 {
			out = append(out, s[i]/o[i])
		}
	}
	return out
}

// seriesJSON is the written form of a Series: readers need not compute.
type seriesJSON struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Rounds []float64 `json:"rounds"`
}

// MarshalJSON implements json.Marshaler.
func (s Series) MarshalJSON() ([]byte, error) {
	return json.Marshal(seriesJSON{Median: s.Median(), Min: s.Min(), Max: s.Max(), Rounds: s})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Series) UnmarshalJSON(data []byte) error {
	var v seriesJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*s = v.Rounds
	return nil
}

// Latency are quantiles over the operations of all rounds, in seconds.
type Latency struct {
	P50 float64 `json:"p50Seconds"`
	P90 float64 `json:"p90Seconds"`
	P99 float64 `json:"p99Seconds"`
	Max float64 `json:"maxSeconds"`
	// Count is the number of operations.
	Count int64 `json:"count"`
	// P50Rounds and P99Rounds are the quantiles of each round alone.
	P50Rounds Series `json:"p50OfRoundsSeconds,omitempty"`
	P99Rounds Series `json:"p99OfRoundsSeconds,omitempty"`
}

// Bounds and precision of a histogram: from a microsecond to ten minutes, with
// an error of a thousandth at most.
const (
	histogramMin    = int64(time.Microsecond)
	histogramMax    = int64(10 * time.Minute)
	histogramDigits = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(histogramMin, histogramMax, histogramDigits)
}

func record(h *hdrhistogram.Histogram, samples []time.Duration) error {
	for _, s := range samples {
		if err := h.RecordValue(int64(s)); err != nil {
			return fmt.Errorf("record a latency of %s: %w", s, err)
		}
	}
	return nil
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	seconds := func(ns int64) float64 { return time.Duration(ns).Seconds() }
	return Latency{
		P50: seconds(h.ValueAtQuantile(50)), P90: seconds(h.ValueAtQuantile(90)), P99: seconds(h.ValueAtQuantile(99)),
		Max: seconds(h.Max()), Count: h.TotalCount(),
	}
}

// Latencies collects the latencies of operations, round by round.
type Latencies struct {
	all      *hdrhistogram.Histogram
	p50, p99 Series
}

func NewLatencies() *Latencies { return &Latencies{all: newHistogram()} }

// Record adds the operations of a round.
func (l *Latencies) Record(samples []time.Duration) error {
	if len(samples) == 0 {
		return nil
	}
	round := newHistogram()
	if err := record(round, samples); err != nil {
		return err
	}
	of := latencyOf(round)
	l.p50, l.p99 = append(l.p50, of.P50), append(l.p99, of.P99)
	l.all.Merge(round)
	return nil
}

func (l *Latencies) Latency() Latency {
	out := latencyOf(l.all)
	out.P50Rounds, out.P99Rounds = l.p50, l.p99
	return out
}
