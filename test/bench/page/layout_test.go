package page

import (
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// textWidth returns how wide a text is in Arial, whose widths Liberation Sans and
// Helvetica share, as a multiple of the font's size.
func textWidth(text string) float64 {
	sum := 0.0
	for _, r := range text {
		wide := 1.015 // the widest, of '@'
		for _, class := range []struct {
			letters string
			wide    float64
		}{
			{"'", 0.191},
			{"ijl", 0.222},
			{" !,./:;I[]ft·", 0.278},
			{"()-r", 0.333},
			{"Jcksvxyz", 0.5},
			{"0123456789abdeghnopqu$?#Lµ", 0.556},
			{"+<=>≤", 0.584},
			{"FTZ", 0.611},
			{"&ABEKPSVXY", 0.667},
			{"wCDHNRU", 0.722},
			{"GOQ", 0.778},
			{"mM", 0.833},
			{"%", 0.889},
			{"W", 0.944},
		} {
			if strings.ContainsRune(class.letters, r) {
				wide = class.wide
			}
		}
		sum += wide
	}
	return sum
}

// box is the place of a text.
type box struct {
	text                     string
	left, right, top, bottom float64
}

var (
	textElement = regexp.MustCompile(`<text class="[^"]*" x="([^"]*)" y="([^"]*)" font-size="([^"]*)" fill="[^"]*"(?: text-anchor="([^"]*)")?( font-weight="bold")?>([^<]*)</text>`)
	viewBox     = regexp.MustCompile(`viewBox="([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*)"`)
)

func numberIn(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// boxes returns the places of a figure's texts, in a font so many times as wide as Arial.
func boxes(t *testing.T, svg string, stretch float64) []box {
	t.Helper()
	var all []box
	for _, m := range textElement.FindAllStringSubmatch(svg, -1) {
		x, y, size := numberIn(t, m[1]), numberIn(t, m[2]), numberIn(t, m[3])
		text := html.UnescapeString(m[6])
		wide := textWidth(text) * size * stretch
		if m[5] != "" {
			wide *= 1.08 // bold
		}
		b := box{text, x, x + wide, y - 0.75*size, y + 0.22*size}
		switch m[4] {
		case "middle":
			b.left, b.right = x-wide/2, x+wide/2
		case "end":
			b.left, b.right = x-wide, x
		}
		all = append(all, b)
	}
	if len(all) != strings.Count(svg, "<text") {
		t.Fatalf("%d of %d texts are understood", len(all), strings.Count(svg, "<text"))
	}
	return all
}

// layoutErrors are texts that leave the figure or cover each other.
func layoutErrors(t *testing.T, svg string, stretch float64) []string {
	t.Helper()
	m := viewBox.FindStringSubmatch(svg)
	if m == nil {
		t.Fatal("no viewBox")
	}
	left, top := numberIn(t, m[1]), numberIn(t, m[2])
	right, bottom := left+numberIn(t, m[3]), top+numberIn(t, m[4])
	var found []string
	all := boxes(t, svg, stretch)
	for i, b := range all {
		if b.left < left || b.right > right || b.top < top || b.bottom > bottom {
			found = append(found, fmt.Sprintf("outside of the figure: %+v", b))
		}
		for _, o := range all[:i] {
			if min(b.right, o.right) > max(b.left, o.left) && min(b.bottom, o.bottom) > max(b.top, o.top) {
				found = append(found, fmt.Sprintf("%q covers %q", b.text, o.text))
			}
		}
	}
	return found
}

// TestTextsLeaveEachOtherRoom needs no browser, as TestLayout does. The second font is as
// wide as the widest that a reader without Arial has (DejaVu Sans, Verdana).
func TestTextsLeaveEachOtherRoom(t *testing.T) {
	for path, r := range reports(t) {
		for _, f := range Figures(r) {
			var file strings.Builder
			if err := f.WriteSVG(&file); err != nil {
				t.Fatal(err)
			}
			for what, svg := range map[string]string{"on the page": f.Inline(), "as a file": file.String()} {
				for _, stretch := range []float64{1, 1.15} {
					for _, e := range layoutErrors(t, svg, stretch) {
						t.Errorf("%s: %s %s, font of %v: %s", path, f.Name, what, stretch, e)
					}
				}
			}
		}
	}
}

func TestLayoutErrorsAreFound(t *testing.T) {
	text := func(x, y, text string) string {
		return `<text class="ink" x="` + x + `" y="` + y + `" font-size="12" fill="#000000">` + text + `</text>`
	}
	found := strings.Join(layoutErrors(t, `<svg viewBox="0 0 100 50">`+text("10", "20", "one")+text("14", "22", "two")+text("90", "40", "outside")+`</svg>`, 1), "\n")
	for _, want := range []string{`"two" covers "one"`, "outside of the figure: {text:outside"} {
		if !strings.Contains(found, want) {
			t.Errorf("%s is not among\n%s", want, found)
		}
	}
}
