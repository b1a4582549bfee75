package plot

import (
	"image/color"
	"io"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgimg"
)

// png is a canvas of pixels, two for each unit of a figure.
type png struct {
	*ruler
	canvas *vgimg.Canvas
	height float64
}

// pointsAnInch is the resolution of gonum's lengths.
const pointsAnInch = 72

func newPNG(height float64) *png {
	return &png{newRuler(), vgimg.NewWith(
		vgimg.UseWH(vg.Length(width), vg.Length(height)), vgimg.UseDPI(2*pointsAnInch), vgimg.UseBackgroundColor(color.White)), height}
}

func (c *png) write(w io.Writer) error {
	_, err := vgimg.PngCanvas{Canvas: c.canvas}.WriteTo(w)
	return err
}

// at turns the y axis.
func (c *png) at(p point) vg.Point { return vg.Point{X: vg.Length(p.x), Y: vg.Length(c.height - p.y)} }

func (c *png) line(from, to point, thick float64, dashes []float64, p paint) {
	var pattern []vg.Length
	for _, d := range dashes {
		pattern = append(pattern, vg.Length(d))
	}
	c.canvas.SetColor(light().of(p))
	c.canvas.SetLineWidth(vg.Length(thick))
	c.canvas.SetLineDash(pattern, 0)
	var path vg.Path
	path.Move(c.at(from))
	path.Line(c.at(to))
	c.canvas.Stroke(path)
}

func (c *png) polygon(corners []point, hollow bool, p paint) {
	var path vg.Path
	path.Move(c.at(corners[0]))
	for _, k := range corners[1:] {
		path.Line(c.at(k))
	}
	path.Close()
	c.canvas.SetColor(light().of(p))
	if hollow {
		c.canvas.SetColor(color.White)
	}
	c.canvas.Fill(path)
	c.canvas.SetColor(light().of(p))
	c.canvas.SetLineWidth(1.6)
	c.canvas.SetLineDash(nil, 0)
	c.canvas.Stroke(path)
}

func (c *png) text(x, y float64, s string, a anchor, f font, p paint) {
	switch a {
	case middle:
		x -= c.width(s, f) / 2
	case end:
		x -= c.width(s, f)
	}
	c.canvas.SetColor(light().of(p))
	c.canvas.FillString(c.face(f), c.at(point{x, y}), s)
}
