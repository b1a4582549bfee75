package plot

import (
	"math"
	"strings"
)

// canvas receives the drawing of a figure; the y axis points down.
type canvas interface {
	// line draws a line of that thickness; dashes are lengths of line and gap.
	line(from, to point, thick float64, dashes []float64, p paint)
	// polygon fills an area, or draws its outline on paper.
	polygon(corners []point, hollow bool, p paint)
	text(x, y float64, s string, a anchor, f font, p paint)
	// width returns how wide text is.
	width(s string, f font) float64
	// begin and end enclose the marks of one value; its text is the tip.
	begin(tip string, value float64)
	end()
}

type point struct{ x, y float64 }

// paint is a colour: from zero on, that of a series.
type paint int

const (
	ink paint = -1 - iota
	faint
	grid
)

// anchor is the point of a text at the given place.
type anchor int

const (
	start anchor = iota
	middle
	end
)

// font is that of a text.
type font struct {
	size float64
	bold bool
}

// The looks of series.
const looks = 6

// shape returns the corners of a series' mark around a point.
func shape(look int, at point) []point {
	const r = 4.2
	polar := func(corners int, turn, r float64) []point {
		var out []point
		for i := range corners {
			a := turn + 2*math.Pi*float64(i)/float64(corners)
			out = append(out, point{at.x + r*math.Cos(a), at.y + r*math.Sin(a)})
		}
		return out
	}
	switch look % looks {
	case 1:
		return polar(4, math.Pi/4, r*1.3)
	case 2:
		return polar(3, -math.Pi/2, r*1.35)
	case 3:
		return polar(4, 0, r*1.3)
	case 4:
		return polar(3, math.Pi/2, r*1.35)
	case 5:
		return polar(6, 0, r*1.15)
	}
	return polar(24, 0, r)
}

// dashes returns those of a series' lines.
func dashes(look int) []float64 {
	switch look % looks {
	case 1:
		return []float64{6, 3}
	case 2:
		return []float64{2, 3}
	case 3:
		return []float64{8, 3, 2, 3}
	case 4:
		return []float64{10, 4}
	case 5:
		return []float64{4, 2, 1, 2, 1, 2}
	}
	return nil
}

func splitWords(text string) []string { return strings.Fields(text) }
