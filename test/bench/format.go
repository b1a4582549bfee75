package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// unit is how a kind of figure is printed.
type unit struct {
	name  string
	scale float64
}

// The units that there is no choice of.
func megabytes() unit { return unit{" MB", 1e-6} }

func multiples() unit { return unit{" x", 1} }

func plain() unit { return unit{"", 1} }

// seconds returns the unit for a time of that many seconds.
func seconds(v float64) unit {
	if v >= 1 {
		return unit{" s", 1}
	}
	return unit{" ms", 1000}
}

// print prints a value with its unit.
func (u unit) print(v float64) string { return u.bare(v) + u.name }

func (u unit) bare(v float64) string { return digits(v * u.scale) }

// duration prints seconds, minutes from 100 of them on.
func duration(v float64) string {
	if v >= 100 {
		return time.Duration(v * float64(time.Second)).Round(time.Second).String()
	}
	return seconds(v).print(v)
}

// digits prints a number with at least three digits that count, and never in
// exponents: columns are compared by eye. Whole numbers stay whole.
func digits(v float64) string {
	decimals := 4
	switch {
	case v == float64(int64(v)), v >= 100:
		return grouped(int64(v + 0.5))
	case v >= 10:
		decimals = 1
	case v >= 1:
		decimals = 2
	case v >= 0.1:
		decimals = 3
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// grouped prints a number with separators.
func grouped(v int64) string {
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

// spread prints the median of a series, and the ends if there is more than
// one value, all in the median's unit.
func spread(s Series, u unit) string {
	if len(s) < 2 {
		return middle(s, u)
	}
	return fmt.Sprintf("%s (%s..%s)", middle(s, u), u.bare(s.Min()), u.bare(s.Max()))
}

func spreadSeconds(s Series) string { return spread(s, seconds(s.Median())) }

func middleSeconds(s Series) string { return middle(s, seconds(s.Median())) }

// share prints a part of a whole, over all rounds.
func share(part, whole Series) string {
	if whole.sum() == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*part.sum()/whole.sum())
}

// middle prints the median of a series, or nothing if it is empty.
func middle(s Series, u unit) string {
	if len(s) == 0 {
		return ""
	}
	return u.print(s.Median())
}
