package plot

import (
	"fmt"
	"image/color"
	"strings"
)

// palette are the colours of a scheme. Those of series are distinct with any
// kind of colour vision (after Okabe and Ito), and stand out from paper 3 to 1
// at the least.
type palette struct {
	ink, faint, grid, paper color.NRGBA
	series                  [looks]color.NRGBA
}

func rgb(v uint32) color.NRGBA {
	return color.NRGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 0xff}
}

func light() palette {
	return palette{
		rgb(0x1c2127), rgb(0x57606a), rgb(0xd5dae0), rgb(0xffffff),
		[looks]color.NRGBA{rgb(0x0069a8), rgb(0xc04d00), rgb(0x00805c), rgb(0xa8487f), rgb(0x7a6a00), rgb(0x3d4a9e)},
	}
}

func dark() palette {
	return palette{
		rgb(0xe6eaef), rgb(0xa3adb8), rgb(0x3a424c), rgb(0x171b20),
		[looks]color.NRGBA{rgb(0x5ab4ee), rgb(0xff9650), rgb(0x35cf9f), rgb(0xec9fca), rgb(0xdccb52), rgb(0xa5b1ff)},
	}
}

// of returns the colour of a paint.
func (k palette) of(p paint) color.NRGBA {
	switch p {
	case ink:
		return k.ink
	case faint:
		return k.faint
	case grid:
		return k.grid
	}
	return k.series[int(p)%looks]
}

// variables are the colours for CSS.
func (k palette) variables() string {
	var b strings.Builder
	fmt.Fprintf(&b, "--ink:%s;--faint:%s;--grid:%s;--paper:%s", hex(k.ink), hex(k.faint), hex(k.grid), hex(k.paper))
	for i, c := range k.series {
		fmt.Fprintf(&b, ";--s%d:%s", i, hex(c))
	}
	return b.String()
}

// Style returns the CSS of figures: a page that has them inline needs it once. It
// follows the reader's colour scheme, and prints in light colours.
func Style() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".plot{%s;font-family:\"Liberation Sans\",Arial,Helvetica,sans-serif}\n", light().variables())
	fmt.Fprintf(&b, "@media screen and (prefers-color-scheme:dark){.plot{%s}}\n", dark().variables())
	names := []string{ink.name(), faint.name(), grid.name()}
	for i := range looks {
		names = append(names, paint(i).name())
	}
	for _, n := range names {
		fmt.Fprintf(&b, ".plot .%[1]s{fill:var(--%[1]s);stroke:var(--%[1]s)}\n", n)
	}
	b.WriteString(".plot .hollow,.plot .paper{fill:var(--paper)}\n.plot text.ink,.plot text.faint{stroke:none}\n")
	return b.String()
}

// name is the class of a paint in Style.
func (p paint) name() string {
	switch p {
	case ink:
		return "ink"
	case faint:
		return "faint"
	case grid:
		return "grid"
	}
	return fmt.Sprintf("s%d", int(p)%looks)
}

func hex(c color.NRGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }
