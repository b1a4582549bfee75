package terminal

import "github.com/jedib0t/go-pretty/v6/table"

// Table is rows in aligned columns below a heading. Numbers stand to the right.
type Table struct{ writer table.Writer }

// NewTable returns a table without rows. Headings are upper case, as kubectl
// has them.
func NewTable(style Style, headings ...string) *Table {
	t := &Table{writer: table.NewWriter()}
	look := table.StyleDefault
	look.Options = table.OptionsNoBordersAndSeparators
	look.Format.Header = 0 // as it is given
	look.Box.PaddingLeft, look.Box.PaddingRight = "", "  "
	t.writer.SetStyle(look)
	t.writer.SuppressTrailingSpaces()
	row := make(table.Row, len(headings))
	for i, h := range headings {
		row[i] = style.Bold(h)
	}
	t.writer.AppendHeader(row)
	return t
}

// Row appends a row.
func (t *Table) Row(cells ...any) { t.writer.AppendRow(cells) }

// String returns the table's lines; the last one has no line end.
func (t *Table) String() string { return t.writer.Render() }
