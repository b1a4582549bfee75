package plot

import "math"

type point struct{ x, y float64 }

// paint is a colour: from zero on, that of a series.
type paint int

const (
	ink paint = -1 - iota
	faint
	grid
)

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

// dashes returns the lengths of line and gap in a series' lines.
func dashes(look int) string {
	return [looks]string{"", "6 3", "2 3", "8 3 2 3", "10 4", "4 2 1 2 1 2"}[look%looks]
}
