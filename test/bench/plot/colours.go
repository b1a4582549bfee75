package plot

import (
	"fmt"
	"strings"
)

// palette are the colours of a scheme, in CSS. Those of series are distinct with any
// kind of colour vision (after Okabe and Ito), and stand out from paper 3 to 1
// at the least.
type palette struct {
	ink, faint, grid, paper string
	series                  [looks]string
}

func light() palette {
	return palette{"#1c2127", "#57606a", "#d5dae0", "#ffffff", [looks]string{"#0069a8", "#c04d00", "#00805c", "#a8487f", "#7a6a00", "#3d4a9e"}}
}

func dark() palette {
	return palette{"#e6eaef", "#a3adb8", "#3a424c", "#171b20", [looks]string{"#5ab4ee", "#ff9650", "#35cf9f", "#ec9fca", "#dccb52", "#a5b1ff"}}
}

// of returns the colour of a paint.
func (k palette) of(p paint) string {
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
	all := "--paper:" + k.paper
	for _, p := range paints() {
		all += fmt.Sprintf(";--%s:%s", p.name(), k.of(p))
	}
	return all
}

// paints are all there are.
func paints() []paint {
	all := []paint{ink, faint, grid}
	for i := range looks {
		all = append(all, paint(i))
	}
	return all
}

// Style returns the CSS of figures: a page that has them inline needs it once. It
// follows the reader's colour scheme, and prints in light colours.
func Style() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".plot{%s;font-family:\"Liberation Sans\",Arial,Helvetica,sans-serif}\n", light().variables())
	fmt.Fprintf(&b, "@media screen and (prefers-color-scheme:dark){.plot{%s}}\n", dark().variables())
	for _, p := range paints() {
		fmt.Fprintf(&b, ".plot .%[1]s{fill:var(--%[1]s);stroke:var(--%[1]s)}\n", p.name())
	}
	b.WriteString(".plot .open,.plot .paper{fill:var(--paper)}\n.plot text.ink,.plot text.faint{stroke:none}\n")
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
