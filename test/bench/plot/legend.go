package plot

// entry is one of a legend: a sign, and its meaning.
type entry struct {
	name string
	// draw draws the sign around a point.
	draw func(c *canvas, at point)
}

// signWidth is the room of a sign, before its name.
const signWidth = 22.0

func entriesOf(all []Series) []entry {
	var out []entry
	for _, s := range all {
		out = append(out, entry{s.Name, func(c *canvas, at point) {
			c.line(point{at.x - signWidth/2 + 1, at.y}, point{at.x + signWidth/2 - 1, at.y}, 1.6, dashes(s.Look), paint(s.Look))
			c.polygon(shape(s.Look, at), false, paint(s.Look))
		}})
	}
	return out
}

// floorEntry is that of a floor.
func floorEntry(name string) entry {
	return entry{name, func(c *canvas, at point) {
		c.line(point{at.x - signWidth/2 + 1, at.y}, point{at.x + signWidth/2 - 1, at.y}, 1.6, floorDashes, ink)
	}}
}

const floorDashes = "1.5 2.5"

// legend draws entries from the height y on, as many beside each other as there
// is room for, and returns where it ends.
func legend(c *canvas, entries []entry, y float64) float64 {
	f := font{smallSize, false}
	x := margin
	for _, e := range entries {
		wide := signWidth + 4 + room(e.name, f)
		if x > margin && x+wide > width-margin {
			x, y = margin, y+line
		}
		e.draw(c, point{x + signWidth/2, y + line/2})
		c.text(x+signWidth+4, y+line/2+4, e.name, start, f, ink)
		x += wide + 14
	}
	return y + line
}
