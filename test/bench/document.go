package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// document is a report on its way to a reader.
type document struct {
	title    string
	sections []section
}

// section is a heading, a table, and text below it.
type section struct {
	heading string
	header  []string
	rows    [][]string
	// left is how many columns, from the left, are words; the rest are
	// figures. Columns with nothing in any row are left out.
	left int
	text []string
}

// writeText writes a document for a terminal.
func (d *document) writeText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, d.title)
	for _, s := range d.sections {
		fmt.Fprintf(&b, "\n%s\n", s.heading)
		if len(s.rows) > 0 {
			t := s.table()
			style := table.StyleDefault
			style.Options = table.OptionsNoBordersAndSeparators
			style.Format.Header = text.FormatDefault
			style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
			t.SetStyle(style)
			for line := range strings.Lines(t.Render() + "\n") {
				fmt.Fprintf(&b, "  %s\n", strings.TrimRight(line, " \n"))
			}
		}
		for _, p := range s.text {
			for _, line := range wrap(p, 110) {
				fmt.Fprintf(&b, "  %s\n", line)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeMarkdown writes a document for a repository.
func (d *document) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", d.title)
	for _, s := range d.sections {
		fmt.Fprintf(&b, "\n## %s\n", s.heading)
		if len(s.rows) > 0 {
			fmt.Fprintf(&b, "\n%s\n", s.table().RenderMarkdown())
		}
		for _, p := range s.text {
			fmt.Fprintf(&b, "\n%s\n", strings.Join(wrap(p, 80), "\n"))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// empty reports whether a column has nothing in any row.
func (s *section) empty(column int) bool {
	return !slices.ContainsFunc(s.rows, func(cells []string) bool { return cells[column] != "" })
}

func (s *section) table() table.Writer {
	t := table.NewWriter()
	row := func(cells []string) table.Row {
		var out table.Row
		for _, c := range cells {
			out = append(out, c)
		}
		return out
	}
	var columns []table.ColumnConfig
	for i := range s.header {
		c := table.ColumnConfig{Number: i + 1}
		if i >= s.left {
			c.Align, c.AlignHeader = text.AlignRight, text.AlignRight
		}
		c.Hidden = s.empty(i)
		columns = append(columns, c)
	}
	t.SetColumnConfigs(columns)
	t.AppendHeader(row(s.header))
	for _, r := range s.rows {
		t.AppendRow(row(r))
	}
	return t
}

// wrap breaks a paragraph into lines.
func wrap(paragraph string, width int) []string {
	var lines []string
	var line string
	for _, word := range strings.Fields(paragraph) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
