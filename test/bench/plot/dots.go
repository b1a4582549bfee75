package plot

import (
	"slices"
	"strings"
)

// Dots are marks along one axis, in groups of rows: one row for each series.
type Dots struct {
	Series []Series
	Axis   Axis
	Groups []Group
	// First and Second name the filled and the open mark of a row;
	// without Second there is one mark.
	First, Second string
}

// Group is rows below one label.
type Group struct {
	Label string
	Rows  []Row
}

// Row has the values of one series in a group.
type Row struct {
	// Series is an index into the series of the figure.
	Series int
	First  Value
	// Second is drawn if the figure has one.
	Second Value
}

// Empty implements Body.
func (d *Dots) Empty() bool { return len(d.values()) == 0 }

// series are those that have a row.
func (d *Dots) series() []Series {
	var all []Series
	for i, s := range d.Series {
		if slices.ContainsFunc(d.Groups, func(g Group) bool {
			return slices.ContainsFunc(g.Rows, func(r Row) bool { return r.Series == i })
		}) {
			all = append(all, s)
		}
	}
	return all
}

func (d *Dots) entries() []entry {
	if d.Second == "" {
		return nil
	}
	sign := func(open bool) func(*canvas, point) {
		return func(c *canvas, at point) { c.polygon(shape(0, at), open, faint) }
	}
	return []entry{{d.First, sign(false)}, {d.Second, sign(true)}}
}

func (d *Dots) values() []float64 {
	var all []float64
	for _, g := range d.Groups {
		for _, r := range g.Rows {
			all = append(all, r.First.Low, r.First.At, r.First.High)
			if d.Second != "" {
				all = append(all, r.Second.Low, r.Second.At, r.Second.High)
			}
		}
	}
	return all
}

const (
	laneHeight = 15.0
	groupGap   = 7.0
)

func (d *Dots) draw(c *canvas, y float64) float64 {
	// Figures stand in a column of their own to the right of the marks.
	small := font{smallSize, false}
	column := 0.0
	for _, g := range d.Groups {
		for _, r := range g.Rows {
			column = max(column, room(d.print(r), small))
		}
	}
	s := newScale(d.Axis, d.values(), margin+12, width-margin-column-14)
	ticks := s.ticks(func(text string) float64 { return room(text, small) + 12 })
	y += 4
	for _, g := range d.Groups {
		y += groupGap + line
		c.text(margin, y-4, g.Label, start, font{textSize, true}, ink)
		// The grid leaves labels alone.
		for _, v := range ticks {
			c.line(point{s.at(v), y}, point{s.at(v), y + laneHeight*float64(len(g.Rows))}, 1, "", grid)
		}
		for _, r := range g.Rows {
			d.row(c, s, r, y+laneHeight/2)
			y += laneHeight
		}
	}
	y += 4
	c.line(point{s.from, y}, point{s.to, y}, 1, "", faint)
	for _, v := range ticks {
		c.line(point{s.at(v), y}, point{s.at(v), y + 4}, 1, "", faint)
		c.text(s.at(v), y+16, label(v), middle, small, faint)
	}
	c.text(margin, y+32, d.Axis.Label, start, small, ink)
	return y + 38
}

// print returns the text of the column.
func (d *Dots) print(r Row) string {
	if d.Second == "" {
		return d.Axis.Print(r.First.At)
	}
	first, second := d.Axis.Print(r.First.At), d.Axis.Print(r.Second.At)
	if figure, unit, _ := strings.Cut(first, " "); strings.HasSuffix(second, " "+unit) {
		first = figure // the unit is printed once
	}
	return first + " · " + second
}

func (d *Dots) row(c *canvas, s scale, r Row, y float64) {
	look := d.Series[r.Series].Look
	place := func(v float64) float64 { return s.at(v * d.Axis.Scale) }
	if d.Second != "" {
		c.line(point{place(r.First.At), y}, point{place(r.Second.At), y}, 1.6, "", paint(look))
		d.mark(c, r, d.Second, r.Second, place, y, true)
	}
	d.mark(c, r, d.First, r.First, place, y, false)
	c.text(width-margin, y+4, d.print(r), end, font{smallSize, false}, ink)
}

// mark draws one value. A figure of two has no whiskers: lines lead from one to
// the other.
func (d *Dots) mark(c *canvas, r Row, what string, v Value, place func(float64) float64, y float64, open bool) {
	series := d.Series[r.Series]
	name := series.Name
	if what != "" {
		name += ", " + what
	}
	c.begin(name+": "+d.Axis.printAll(v), v.At)
	if d.Second == "" && v.Low < v.High {
		whisker(c, point{place(v.Low), y}, point{place(v.High), y}, paint(series.Look))
	}
	c.polygon(shape(series.Look, point{place(v.At), y}), open, paint(series.Look))
	c.end()
}

// whisker draws a line with ends across it.
func whisker(c *canvas, from, to point, p paint) {
	c.line(from, to, 1.6, "", p)
	for _, at := range []point{from, to} {
		if from.y == to.y {
			c.line(point{at.x, at.y - 3.5}, point{at.x, at.y + 3.5}, 1.6, "", p)
		} else {
			c.line(point{at.x - 3.5, at.y}, point{at.x + 3.5, at.y}, 1.6, "", p)
		}
	}
}
