package plot

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// svg is a canvas that writes elements of SVG. Colours are attributes, for readers
// without CSS, and classes of Style.
type svg struct {
	*ruler
	b strings.Builder
}

func newSVG() *svg { return &svg{ruler: newRuler()} }

func (*svg) hex(p paint) string { return hex(light().of(p)) }

// String returns the elements.
func (c *svg) String() string { return c.b.String() }

func (c *svg) line(from, to point, thick float64, dashes []float64, p paint) {
	pattern := ""
	if len(dashes) > 0 {
		pattern = fmt.Sprintf(" stroke-dasharray=%q", strings.Trim(fmt.Sprint(dashes), "[]"))
	}
	fmt.Fprintf(&c.b, "<line class=%q x1=\"%s\" y1=\"%s\" x2=\"%s\" y2=\"%s\" stroke=%q stroke-width=\"%v\"%s/>\n",
		p.name(), short(from.x), short(from.y), short(to.x), short(to.y), c.hex(p), thick, pattern)
}

func (c *svg) polygon(corners []point, hollow bool, p paint) {
	var at []string
	for _, k := range corners {
		at = append(at, short(k.x)+","+short(k.y))
	}
	class, fill := p.name(), c.hex(p)
	if hollow {
		class, fill = class+" hollow", "#ffffff"
	}
	fmt.Fprintf(&c.b, "<polygon class=%q points=%q fill=%q stroke=%q stroke-width=\"1.6\"/>\n", class, strings.Join(at, " "), fill, c.hex(p))
}

func (c *svg) text(x, y float64, s string, a anchor, f font, p paint) {
	more := ""
	switch a {
	case middle:
		more = ` text-anchor="middle"`
	case end:
		more = ` text-anchor="end"`
	}
	if f.bold {
		more += ` font-weight="bold"`
	}
	fmt.Fprintf(&c.b, "<text class=%q x=\"%s\" y=\"%s\" font-size=\"%v\" fill=%q%s>%s</text>\n", p.name(), short(x), short(y), f.size, c.hex(p), more, escape(s))
}

func (c *svg) begin(tip string, value float64) {
	fmt.Fprintf(&c.b, "<g data-value=\"%s\"><title>%s</title>\n", strconv.FormatFloat(value, 'g', -1, 64), escape(tip))
}

func (c *svg) end() { c.b.WriteString("</g>\n") }

// short prints a place to a tenth.
func short(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

func escape(s string) string { return html.EscapeString(s) }
