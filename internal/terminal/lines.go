package terminal

import (
	"fmt"
	"io"
	"strings"
)

// Lines is a table that is printed row by row, as rows come. Its heading comes with the first.
type Lines struct {
	w        io.Writer
	style    Style
	widths   []int
	headings []string
}

// NewLines returns a table without rows. The columns begin with these widths in characters; columns
// without a width are not padded.
func NewLines(w io.Writer, widths []int, headings ...string) *Lines {
	l := &Lines{w: w, style: StyleFor(w), widths: widths}
	if !l.style.bare {
		l.headings = headings
	}
	return l
}

// Row prints a row. A column that was too narrow is as wide as its cell from then on.
func (l *Lines) Row(cells ...string) error {
	if err := l.heading(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(l.w, l.aligned(cells))
	return err
}

// Note prints a line that has no columns.
func (l *Lines) Note(text string) error {
	if err := l.heading(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(l.w, l.style.Faint(l.style.clean(text)))
	return err
}

// heading prints the heading once.
func (l *Lines) heading() error {
	if l.headings == nil {
		return nil
	}
	text := l.style.Bold(l.aligned(l.headings))
	l.headings = nil
	_, err := fmt.Fprintln(l.w, text)
	return err
}

func (l *Lines) aligned(cells []string) string {
	var b strings.Builder
	for i, c := range cells {
		c = l.style.clean(c)
		if i < len(l.widths) {
			l.widths[i] = max(l.widths[i], len(c))
			c = fmt.Sprintf("%-*s"+gap, l.widths[i], c)
		}
		b.WriteString(c)
	}
	return b.String()
}
