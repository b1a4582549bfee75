package plot

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// canvas collects elements of SVG; the y axis points down. Colours are attributes, for
// readers without CSS, and classes of Style.
type canvas struct{ strings.Builder }

// anchor is the point of a text at the given place: a value of text-anchor.
type anchor string

const (
	start  anchor = "start"
	middle anchor = "middle"
	end    anchor = "end"
)

// font is that of a text.
type font struct {
	size float64
	bold bool
}

// room returns the width to keep free for a text. The reader's font decides how wide the
// text is: in the fonts of Style, names and values take less than this.
func room(s string, f font) float64 {
	const each = 0.6 // of the height
	return each * f.size * float64(utf8.RuneCountInString(s))
}

// line draws a line of that thickness; dashes are lengths of line and gap.
func (c *canvas) line(from, to point, thick float64, dashes string, p paint) {
	if dashes != "" {
		dashes = fmt.Sprintf(" stroke-dasharray=%q", dashes)
	}
	fmt.Fprintf(c, "<line class=%q x1=\"%s\" y1=\"%s\" x2=\"%s\" y2=\"%s\" stroke=%q stroke-width=\"%v\"%s/>\n",
		p.name(), short(from.x), short(from.y), short(to.x), short(to.y), light().of(p), thick, dashes)
}

// polygon fills an area, or draws its outline on paper.
func (c *canvas) polygon(corners []point, open bool, p paint) {
	var at []string
	for _, k := range corners {
		at = append(at, short(k.x)+","+short(k.y))
	}
	class, fill := p.name(), light().of(p)
	if open {
		class, fill = class+" open", light().paper
	}
	fmt.Fprintf(c, "<polygon class=%q points=%q fill=%q stroke=%q stroke-width=\"1.6\"/>\n", class, strings.Join(at, " "), fill, light().of(p))
}

func (c *canvas) text(x, y float64, s string, a anchor, f font, p paint) {
	more := ""
	if a != start {
		more = fmt.Sprintf(" text-anchor=%q", a)
	}
	if f.bold {
		more += ` font-weight="bold"`
	}
	fmt.Fprintf(c, "<text class=%q x=\"%s\" y=\"%s\" font-size=\"%v\" fill=%q%s>%s</text>\n", p.name(), short(x), short(y), f.size, light().of(p), more, html.EscapeString(s))
}

// begin and end enclose the marks of one value; its text is the tip.
func (c *canvas) begin(tip string, value float64) {
	fmt.Fprintf(c, "<g data-value=\"%s\"><title>%s</title>\n", strconv.FormatFloat(value, 'g', -1, 64), html.EscapeString(tip))
}

func (c *canvas) end() { c.WriteString("</g>\n") }

// short prints a place to a tenth.
func short(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}
