package plot

import (
	"fmt"
	"html"
	"io"
	"slices"

	"github.com/felixlike/felixlike/test/measure"
)

// Figure is something that can be drawn.
type Figure struct {
	// Name is one of a file, without its ending, Title is over the figure, and
	// Caption explains the figure.
	Name, Title, Caption string
	// Body is the drawing.
	Body Body
}

// Body is Dots or Lines.
type Body interface {
	// Empty reports whether there is nothing to draw.
	Empty() bool
	// draw draws from the height y on and returns where it ends.
	draw(c *canvas, y float64) float64
	// series returns the series in the figure.
	series() []Series
	// entries are the legend's entries beside series.
	entries() []entry
}

// Series is the owner of values.
type Series struct {
	Name string
	// Look is its colour, shape and dashes: the same number looks the same in
	// all figures.
	Look int
}

// Value is one mark: where it is, and the ends of its whisker.
type Value struct {
	At, Low, High float64
}

// Axis is the scale of values.
type Axis struct {
	// Label names the axis, with its unit.
	Label string
	// Scale is the factor from values to that unit.
	Scale float64
	// Log spaces equal ratios equally.
	Log bool
	// Print prints a value in full, with its unit.
	Print func(v float64) string
}

// printAll prints a value with the ends of its whisker.
func (a Axis) printAll(v Value) string {
	if v.Low < v.High {
		return fmt.Sprintf("%s (%s to %s)", a.Print(v.At), a.Print(v.Low), a.Print(v.High))
	}
	return a.Print(v.At)
}

// Sizes of a figure, in the units of its drawing: those of CSS where it is as
// wide as drawn.
const (
	width  = 340.0
	margin = 8.0
	// Heights of text.
	textSize  = 12.0
	smallSize = 11.0
	titleSize = 14.0
	line      = 16.0
)

// WriteSVG writes the figure as a file that stands alone, with its title.
func (f *Figure) WriteSVG(w io.Writer) error {
	c, y := &canvas{}, margin
	title := font{titleSize, true}
	for _, l := range measure.Wrap(f.Title, int((width-2*margin)/room(" ", title))) {
		y += titleSize + 4
		c.text(margin, y-4, l, start, title, ink)
	}
	height := f.draw(c, y)
	_, err := fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" width=\"%[1]v\" height=\"%[2]v\" viewBox=\"0 0 %[1]v %[2]v\" role=\"img\" aria-label=\"%[3]s\">\n"+
		"<style>%[4]s</style>\n<rect class=\"paper\" width=\"%[1]v\" height=\"%[2]v\" fill=\"#ffffff\"/>\n%[5]s</svg>\n",
		width, short(height), html.EscapeString(f.Title), Style(), c)
	return err
}

// Inline returns the figure as a part of a page that has Style; the page prints the title.
func (f *Figure) Inline() string {
	c := &canvas{}
	height := f.draw(c, 0)
	// The page has its own margins.
	return fmt.Sprintf("<svg class=\"plot\" viewBox=\"%v 0 %v %v\" role=\"img\" aria-label=\"%s\">\n%s</svg>",
		margin-2, width-2*margin+4, short(height), html.EscapeString(f.Title), c)
}

// draw draws the figure below its title, and returns where it ends.
func (f *Figure) draw(c *canvas, y float64) float64 {
	y = legend(c, slices.Concat(entriesOf(f.Body.series()), f.Body.entries()), y+margin/2)
	return f.Body.draw(c, y) + margin/2
}
