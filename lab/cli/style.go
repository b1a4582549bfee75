package cli

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// style paints text on a terminal and leaves it plain elsewhere.
type style struct{ on bool }

// styleFor returns the style for a writer. NO_COLOR (no-color.org) turns
// colour off on terminals too.
func styleFor(w io.Writer) style {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return style{}
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return style{on: err == nil}
}

func (s style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(text string) string  { return s.paint("1", text) }
func (s style) faint(text string) string { return s.paint("2", text) }
func (s style) good(text string) string  { return s.paint("32", text) }
func (s style) bad(text string) string   { return s.paint("1;37;41", text) }
func (s style) head(text string) string  { return s.paint("1;36", text) }
