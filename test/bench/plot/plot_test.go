package plot

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func axis(log bool) Axis {
	return Axis{Label: "time, ms", Scale: 1e3, Log: log, Print: func(v float64) string { return fmt.Sprintf("%.3g ms", v*1e3) }}
}

func twoSeries() []Series { return []Series{{"one", 0}, {"another & more", 1}} }

func dots(log bool) *Figure {
	row := func(series int, v float64) Row {
		return Row{Series: series, First: Value{v, v / 2, v * 2}, Second: Value{v * 3, v * 3, v * 3}}
	}
	return &Figure{Name: "dots", Title: "A title that is so long that it does not fit into one line of the figure", Body: &Dots{
		Series: twoSeries(), Axis: axis(log),
		Groups: []Group{{"first", []Row{row(0, 0.001), row(1, 0.2)}}, {"second", []Row{row(1, 7)}}},
	}}
}

func lines(log bool) *Figure {
	return &Figure{Name: "lines", Title: "Lines", Body: &Lines{
		Series: twoSeries(), Axis: axis(log), Heads: [2]string{"policies", "peers"},
		Steps:  []Step{{"0", "0", false}, {"1", "1", false}, {"1,000", "10,000", true}},
		Curves: []Curve{{0: {0.001, 0.0005, 0.002}, 1: {0.002, 0.002, 0.002}, 2: {0.5, 0.4, 0.6}}, {1: {0.1, 0.1, 0.2}}},
		Floor:  &Floor{"floor", Value{0.0004, 0.0003, 0.0005}},
	}}
}

func figures() map[string]*Figure {
	return map[string]*Figure{"dots": dots(true), "dots, linear": dots(false), "lines": lines(true), "lines, linear": lines(false)}
}

// places returns the x and y coordinates of the drawing, and each text.
func places(t *testing.T, text string) (xs, ys []float64, texts []string) {
	t.Helper()
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return xs, ys, texts
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.CharData:
			texts = append(texts, string(e))
		case xml.StartElement:
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "x", "x1", "x2":
					xs = append(xs, number(a.Value))
				case "y", "y1", "y2":
					ys = append(ys, number(a.Value))
				case "points":
					for _, p := range strings.Fields(a.Value) {
						x, y, _ := strings.Cut(p, ",")
						xs, ys = append(xs, number(x)), append(ys, number(y))
					}
				}
			}
		}
	}
}

// heightOf returns the height of a file's figure.
func heightOf(t *testing.T, text string) float64 {
	t.Helper()
	var svg struct {
		Height float64 `xml:"height,attr"`
	}
	if err := xml.Unmarshal([]byte(text), &svg); err != nil {
		t.Fatal(err)
	}
	return svg.Height
}

func TestEverythingIsInsideTheFigure(t *testing.T) {
	for name, f := range figures() {
		var b strings.Builder
		if err := f.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		xs, ys, texts := places(t, b.String())
		height := heightOf(t, b.String())
		if slices.Min(xs) < 0 || slices.Max(xs) > width || slices.Min(ys) < 0 || slices.Max(ys) > height {
			t.Errorf("%s: from %v, %v to %v, %v, in %v x %v", name, slices.Min(xs), slices.Min(ys), slices.Max(xs), slices.Max(ys), width, height)
		}
		for _, want := range []string{"one", "another & more", "time, ms"} {
			if !slices.Contains(texts, want) {
				t.Errorf("%s: no text %q in %q", name, want, texts)
			}
		}
		inline := f.Inline()
		if strings.Contains(inline, "://") || strings.Contains(inline, "A title") && !strings.Contains(inline, "aria-label=\"A title") {
			t.Errorf("%s: %s", name, inline)
		}
	}
}

func TestValuesAreInOrder(t *testing.T) {
	for _, log := range []bool{true, false} {
		s := newScale(axis(log), []float64{0.0011, 0.4, 0.9}, 0, 100)
		last := -1.0
		for _, v := range []float64{1.1, 2, 10, 400, 900} {
			at := s.at(v)
			if at <= last || at > 100 {
				t.Errorf("log %v: %v at %v, after %v", log, v, at, last)
			}
			last = at
		}
	}
	s := newScale(Axis{Scale: 1, Log: true}, []float64{1, 100}, 0, 100)
	if got := s.at(10); math.Abs(got-50) > 1e-9 {
		t.Errorf("10 of 1 to 100 is at %v on a log scale", got)
	}
}

func TestTicksAreWholeAndApart(t *testing.T) {
	for _, c := range []struct {
		log    bool
		values []float64
		want   string
	}{
		{true, []float64{0.53, 345}, "1 10 100"},
		{true, []float64{0.2, 0.9}, "0.2 0.5 1"},
		{true, []float64{3, 3}, "2 5"},
		{true, []float64{0}, "1 2 5 10"},
		{false, []float64{4090}, "0 1,000 2,000 3,000 4,000 5,000"},
		{false, []float64{128}, "0 50 100 150"},
		{false, nil, "0 5 10"},
	} {
		s := newScale(Axis{Scale: 1, Log: c.log}, c.values, 0, 200)
		var got []string
		for _, v := range s.ticks(func(string) float64 { return 36 }) {
			got = append(got, label(v))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("log %v, %v: ticks %s, want %s", c.log, c.values, text, c.want)
		}
	}
}

// contrast is that of WCAG 2.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	luminance := func(c string) float64 {
		all, err := strconv.ParseUint(strings.TrimPrefix(c, "#"), 16, 24)
		if err != nil {
			t.Fatal(err)
		}
		of := func(shift int) float64 {
			s := float64(all>>shift&0xff) / 255
			if s <= 0.04045 {
				return s / 12.92
			}
			return math.Pow((s+0.055)/1.055, 2.4)
		}
		return 0.2126*of(16) + 0.7152*of(8) + 0.0722*of(0)
	}
	bright, dim := luminance(a)+0.05, luminance(b)+0.05
	return max(bright, dim) / min(bright, dim)
}

func TestColoursStandOut(t *testing.T) {
	for name, k := range map[string]palette{"light": light(), "dark": dark()} {
		for p := paint(0); p < looks; p++ {
			if got := contrast(t, k.of(p), k.paper); got < 3 {
				t.Errorf("%s: series %d: contrast %.1f", name, p, got)
			}
		}
		for _, p := range []paint{ink, faint} {
			if got := contrast(t, k.of(p), k.paper); got < 4.5 {
				t.Errorf("%s: text in %s: contrast %.1f", name, p.name(), got)
			}
		}
	}
}

func TestValuesWithoutAPlace(t *testing.T) {
	f := dots(true)
	d := f.Body.(*Dots)
	for _, v := range []float64{0, -1, 1e308, 5e-324} {
		d.Groups[0].Rows[0].First = Value{v, v, v}
		if text := f.Inline(); strings.Contains(text, "NaN") || strings.Contains(text, "Inf,") {
			t.Errorf("%v: %s", v, text)
		}
	}
}
