package measure

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Document is a report with a title and sections.
type Document struct {
	Title string
	// Text are paragraphs below the title.
	Text     []string
	Sections []Section
}

// Section is a heading, a table, and the text below it.
type Section struct {
	Heading string
	Header  []string
	Rows    [][]string
	// Left is the number of columns, from the left, with words; the rest are
	// figures. Columns with nothing in any row are left out.
	Left int
	Text []string
}

// WriteText writes a document for a terminal.
func (d *Document) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, d.Title)
	for _, p := range d.Text {
		fmt.Fprintf(&b, "\n%s\n", strings.Join(Wrap(p, 110), "\n"))
	}
	for _, s := range d.Sections {
		fmt.Fprintf(&b, "\n%s\n", s.Heading)
		if len(s.Rows) > 0 {
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
		for _, p := range s.Text {
			for _, line := range Wrap(p, 110) {
				fmt.Fprintf(&b, "  %s\n", line)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown writes a document for a repository.
func (d *Document) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", d.Title)
	for _, p := range d.Text {
		fmt.Fprintf(&b, "\n%s\n", strings.Join(Wrap(p, 80), "\n"))
	}
	for _, s := range d.Sections {
		fmt.Fprintf(&b, "\n## %s\n", s.Heading)
		if len(s.Rows) > 0 {
			fmt.Fprintf(&b, "\n%s\n", s.table().RenderMarkdown())
		}
		for _, p := range s.Text {
			fmt.Fprintf(&b, "\n%s\n", strings.Join(Wrap(p, 80), "\n"))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// empty reports whether a column has nothing in any row.
func (s *Section) empty(column int) bool {
	return !slices.ContainsFunc(s.Rows, func(cells []string) bool { return cells[column] != "" })
}

func (s *Section) table() table.Writer {
	t := table.NewWriter()
	row := func(cells []string) table.Row {
		var out table.Row
		for _, c := range cells {
			out = append(out, c)
		}
		return out
	}
	var columns []table.ColumnConfig
	for i := range s.Header {
		c := table.ColumnConfig{Number: i + 1}
		if i >= s.Left {
			c.Align, c.AlignHeader = text.AlignRight, text.AlignRight
		}
		c.Hidden = s.empty(i)
		columns = append(columns, c)
	}
	t.SetColumnConfigs(columns)
	t.AppendHeader(row(s.Header))
	for _, r := range s.Rows {
		t.AppendRow(row(r))
	}
	return t
}

// Wrap breaks a paragraph into lines.
func Wrap(paragraph string, width int) []string {
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

// Visible returns the section without columns that have nothing in any row.
func (s Section) Visible() Section {
	out := s
	out.Header, out.Left, out.Rows = nil, 0, make([][]string, len(s.Rows))
	for i, h := range s.Header {
		if s.empty(i) {
			continue
		}
		out.Header = append(out.Header, h)
		if i < s.Left {
			out.Left++
		}
		for n, cells := range s.Rows {
			out.Rows[n] = append(out.Rows[n], cells[i])
		}
	}
	return out
}
