package measure

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Unit prints a kind of figure.
type Unit struct {
	name  string
	scale float64
}

// Megabytes is the unit of sizes; it and the units below are fixed.
func Megabytes() Unit { return Unit{" MB", 1e-6} }

// Megabits is the unit of throughput, by the second.
func Megabits() Unit { return Unit{" Mbit/s", 1e-6} }

func Multiples() Unit { return Unit{" x", 1} }

func Plain() Unit { return Unit{"", 1} }

func Microseconds() Unit { return Unit{" us", 1e6} }

func Milliseconds() Unit { return Unit{" ms", 1e3} }

// Seconds returns the unit for a time of that many seconds.
func Seconds(v float64) Unit {
	if v >= 1 {
		return Unit{" s", 1}
	}
	return Unit{" ms", 1000}
}

// Print prints a value with its unit.
func (u Unit) Print(v float64) string { return u.bare(v) + u.name }

func (u Unit) bare(v float64) string { return Digits(v * u.scale) }

// Duration prints seconds, minutes from 100 of them on.
func Duration(v float64) string {
	if v >= 100 {
		return time.Duration(v * float64(time.Second)).Round(time.Second).String()
	}
	return Seconds(v).Print(v)
}

// Digits prints a number with at least three digits that count, and never in
// exponents: columns are compared by eye. Whole numbers stay whole.
func Digits(v float64) string {
	decimals := 4
	switch {
	case v == float64(int64(v)), v >= 100:
		return Grouped(int64(v + 0.5))
	case v >= 10:
		decimals = 1
	case v >= 1:
		decimals = 2
	case v >= 0.1:
		decimals = 3
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// Grouped prints a number with separators.
func Grouped(v int64) string {
	text := strconv.FormatInt(v, 10)
	var b strings.Builder
	for i, r := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Spread prints the median of a series, and the ends if there is more than
// one value, all in the median's unit.
func Spread(s Series, u Unit) string {
	if len(s) < 2 {
		return Middle(s, u)
	}
	return fmt.Sprintf("%s (%s..%s)", Middle(s, u), u.bare(s.Min()), u.bare(s.Max()))
}

func SpreadSeconds(s Series) string { return Spread(s, Seconds(s.Median())) }

func MiddleSeconds(s Series) string { return Middle(s, Seconds(s.Median())) }

// Share prints a part of a whole, over all rounds.
func Share(part, whole Series) string {
	if whole.Sum() == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*part.Sum()/whole.Sum())
}

// Middle prints the median of a series, or nothing if it is empty.
func Middle(s Series, u Unit) string {
	if len(s) == 0 {
		return ""
	}
	return u.Print(s.Median())
}

// Rounds describes the number of rounds.
func Rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds, backends in turn", n)
}
