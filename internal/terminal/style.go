package terminal

import (
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/term"

	"github.com/felixlike/felixlike/internal/printable"
)

// Style paints text on a terminal and fits tables to its width. Elsewhere text is plain
// and as wide as it is.
type Style struct {
	on bool
	// width is the terminal's width in characters, 0 if it is unknown.
	width int
}

// StyleFor returns the style for a writer. NO_COLOR (no-color.org) turns
// colour off on terminals too.
func StyleFor(w io.Writer) Style {
	file, ok := w.(*os.File)
	if !ok {
		return Style{}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return Style{} // it is no terminal
	}
	// A console of Windows may show the sequences of colours as text.
	return Style{on: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows", width: width}
}

func (s Style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// painted matches the sequences of paint.
var painted = regexp.MustCompile("\x1b\\[(1|2|32|1;37;41|1;36|0)m")

// clean replaces what is not printable in a cell, except line ends and this style's colours.
func (s Style) clean(text string) string {
	if !s.on {
		return printable.Lines(text)
	}
	var out strings.Builder
	at := 0
	for _, m := range painted.FindAllStringIndex(text, -1) {
		out.WriteString(printable.Lines(text[at:m[0]]) + text[m[0]:m[1]])
		at = m[1]
	}
	return out.String() + printable.Lines(text[at:])
}

// Bold is for names that head something.
func (s Style) Bold(text string) string { return s.paint("1", text) }

// Faint is for text that a reader may skip.
func (s Style) Faint(text string) string { return s.paint("2", text) }

// Good is for expected results.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Bad is for unexpected results.
func (s Style) Bad(text string) string { return s.paint("1;37;41", text) }

// Head is for headings.
func (s Style) Head(text string) string { return s.paint("1;36", text) }
