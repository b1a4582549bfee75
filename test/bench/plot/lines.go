package plot

import "fmt"

// Lines are the values of series over a number. The numbers stand at
// equal distances: zero and powers of ten go beside each other.
type Lines struct {
	Series []Series
	// Over describes the numbers at the bottom, Heads name their two lines.
	Over  string
	Heads [2]string
	Steps []Step
	Axis  Axis
	// Curves have one for each series, in its order.
	Curves []Curve
	// Floor is the value to compare with; nil if there is none.
	Floor *Floor
}

// Curve is the values of one series, by step; those of steps that are not
// there are left out.
type Curve map[int]Value

// Floor is a value that goes through all steps.
type Floor struct {
	Name string
	Value
}

// Step is one number at the bottom, and another below it.
type Step struct {
	Upper, Lower string
	// Apart leaves out the line from the step before.
	Apart bool
}

// Empty implements Body.
func (l *Lines) Empty() bool { return len(l.values()) == 0 }

func (l *Lines) series() []Series { return l.Series }

func (l *Lines) entries() []entry {
	if l.Floor == nil {
		return nil
	}
	return []entry{floorEntry(l.Floor.Name)}
}

func (l *Lines) values() []float64 {
	var all []float64
	for _, curve := range l.Curves {
		for i := range l.Steps {
			if v, ok := curve[i]; ok {
				all = append(all, v.Low, v.At, v.High)
			}
		}
	}
	if l.Floor != nil && len(all) > 0 {
		all = append(all, l.Floor.Low, l.Floor.At, l.Floor.High)
	}
	return all
}

const linesHeight = 170.0

func (l *Lines) draw(c *canvas, y float64) float64 {
	small := font{smallSize, false}
	c.text(margin, y+line, l.Axis.Label, start, small, ink)
	top := y + line + 16
	bottom := top + linesHeight
	s := newScale(l.Axis, l.values(), bottom, top)
	ticks := s.ticks(func(string) float64 { return 20 })
	column := max(room(l.Heads[0], small), room(l.Heads[1], small))
	for _, v := range ticks {
		column = max(column, room(label(v), small))
	}
	left, right := margin+column+8, width-margin
	for _, v := range ticks {
		c.line(point{left, s.at(v)}, point{right, s.at(v)}, 1, "", grid)
		c.text(left-6, s.at(v)+4, label(v), end, small, faint)
	}
	c.line(point{left, bottom}, point{right, bottom}, 1, "", faint)
	wide := (right - left) / float64(len(l.Steps))
	for i, head := range l.Heads {
		c.text(left-6, bottom+16+float64(i)*14, head, end, small, ink)
	}
	for i, step := range l.Steps {
		x := left + wide*(float64(i)+0.5)
		c.line(point{x, bottom}, point{x, bottom + 4}, 1, "", faint)
		c.text(x, bottom+16, step.Upper, middle, small, faint)
		c.text(x, bottom+30, step.Lower, middle, small, faint)
	}
	c.text(margin, bottom+48, l.Over, start, small, ink)
	if f := l.Floor; f != nil {
		at := s.at(f.At * l.Axis.Scale)
		c.begin(fmt.Sprintf("%s: %s", f.Name, l.Axis.Print(f.At)), f.At)
		c.line(point{left, at}, point{right, at}, 1.6, floorDashes, ink)
		c.end()
	}
	for n := range l.Series {
		l.curve(c, n, s, left, wide)
	}
	return bottom + 54
}

// curve draws that of the n-th series. Series stand a little beside each other, so
// that whiskers do.
func (l *Lines) curve(c *canvas, n int, s scale, left, wide float64) {
	series := l.Series[n]
	aside := (float64(n) - float64(len(l.Series)-1)/2) * min(8, wide/float64(len(l.Series)+1))
	p := paint(series.Look)
	var places []point
	var steps []int
	for i := range l.Steps {
		if v, ok := l.Curves[n][i]; ok {
			places = append(places, point{left + wide*(float64(i)+0.5) + aside, s.at(v.At * l.Axis.Scale)})
			steps = append(steps, i)
		}
	}
	for i := 1; i < len(places); i++ {
		if steps[i] != steps[i-1]+1 || l.Steps[steps[i]].Apart {
			continue
		}
		c.line(places[i-1], places[i], 1.6, dashes(series.Look), p)
	}
	for i, at := range places {
		v := l.Curves[n][steps[i]]
		step := l.Steps[steps[i]]
		c.begin(fmt.Sprintf("%s, %s %s, %s %s: %s", series.Name, step.Upper, l.Heads[0], step.Lower, l.Heads[1], l.Axis.printAll(v)), v.At)
		if v.Low < v.High {
			whisker(c, point{at.x, s.at(v.Low * l.Axis.Scale)}, point{at.x, s.at(v.High * l.Axis.Scale)}, p)
		}
		c.polygon(shape(series.Look, at), false, p)
		c.end()
	}
}
