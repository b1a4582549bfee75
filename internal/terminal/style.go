package terminal

import (
	"io"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/felixlike/felixlike/internal/printable"
)

// Style paints text on a terminal and fits tables to its width. Elsewhere text is plain
// and as wide as it is.
type Style struct {
	on bool
	// width is the terminal's width in characters, 0 if it is unknown.
	width int
	// bare leaves out the headings of tables.
	bare bool
}

// StyleFor returns the style for a writer. NO_COLOR (no-color.org) turns
// colour off on terminals too.
func StyleFor(w io.Writer) Style {
	s := Style{bare: NoHeaders(w)}
	file, ok := File(w)
	if !ok {
		return s
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return s // it is no terminal
	}
	// A console of Windows may show the sequences of colours as text.
	s.on, s.width = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows", width
	return s
}

// bareWriter is the output of a command with --no-headers.
type bareWriter struct{ io.Writer }

// HeadersFlag adds the flag --no-headers to a command that prints tables to its output.
// Output.Flag does, too.
func HeadersFlag(c *cobra.Command) {
	c.Flags().BoolFunc("no-headers", "print tables without headings", func(text string) error {
		no, err := strconv.ParseBool(text)
		if err == nil && no {
			c.SetOut(bareWriter{c.OutOrStdout()})
		}
		return err
	})
}

// NoHeaders reports whether a writer is the output of a command with --no-headers.
func NoHeaders(w io.Writer) bool {
	_, bare := w.(bareWriter)
	return bare
}

// File returns the file that a command writes to, if its output is one.
func File(w io.Writer) (*os.File, bool) {
	if bare, is := w.(bareWriter); is {
		w = bare.Writer
	}
	file, is := w.(*os.File)
	return file, is
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
