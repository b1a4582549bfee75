package plot

import (
	xfont "golang.org/x/image/font"
	plotfont "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
)

// ruler is a canvas that draws nothing: it measures the width of text. The
// widths of its font are those of Arial and Helvetica.
type ruler struct{ fonts *plotfont.Cache }

func newRuler() *ruler { return &ruler{plotfont.NewCache(liberation.Collection())} }

func (r *ruler) face(f font) plotfont.Face {
	weight := xfont.WeightNormal
	if f.bold {
		weight = xfont.WeightBold
	}
	return r.fonts.Lookup(plotfont.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight}, plotfont.Length(f.size))
}

func (r *ruler) width(s string, f font) float64 {
	face := r.face(f)
	return float64(face.Width(s))
}

func (*ruler) line(point, point, float64, []float64, paint)       {}
func (*ruler) polygon([]point, bool, paint)                       {}
func (*ruler) text(float64, float64, string, anchor, font, paint) {}
func (*ruler) begin(string, float64)                              {}
func (*ruler) end()                                               {}
