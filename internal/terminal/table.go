package terminal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

const (
	// gap is the space between two columns.
	gap = "  "
	// narrowest bounds the narrowing of a column, in characters.
	narrowest = 12
)

// Table is rows in aligned columns below a heading. Numbers stand to the right. On a
// terminal, the widest columns are wrapped to its width.
type Table struct {
	writer table.Writer
	style  Style
	// widths are the columns' widths in characters, words those of their longest words, parts those of the longest parts of words
	// between slashes.
	widths, words, parts []int
}

// NewTable returns a table without rows. Headings are upper case, as kubectl
// has them. --no-headers leaves them out.
func NewTable(style Style, headings ...string) *Table {
	t := &Table{writer: table.NewWriter(), style: style, widths: make([]int, len(headings)), words: make([]int, len(headings)), parts: make([]int, len(headings))}
	look := table.StyleDefault
	look.Options = table.OptionsNoBordersAndSeparators
	look.Format.Header = 0 // as it is given
	look.Box.PaddingLeft, look.Box.PaddingRight = "", gap
	t.writer.SetStyle(look)
	t.writer.SuppressTrailingSpaces()
	if style.bare {
		return t
	}
	row := make(table.Row, len(headings))
	for i, h := range headings {
		row[i] = style.Bold(h)
		t.measure(i, h)
	}
	t.writer.AppendHeader(row)
	return t
}

// Row appends a row.
func (t *Table) Row(cells ...any) {
	row := slices.Clone(cells)
	for i, c := range row {
		if s, ok := c.(string); ok {
			row[i] = t.style.clean(s)
		}
		t.measure(i, fmt.Sprint(row[i]))
	}
	t.writer.AppendRow(row)
}

// measure notes the width of a cell.
func (t *Table) measure(column int, cell string) {
	for line := range strings.Lines(cell) {
		if column < len(t.widths) {
			t.widths[column] = max(t.widths[column], text.StringWidthWithoutEscSequences(line))
			for word := range strings.FieldsSeq(line) {
				t.words[column] = max(t.words[column], text.StringWidthWithoutEscSequences(word))
				for part := range strings.SplitAfterSeq(word, "/") {
					t.parts[column] = max(t.parts[column], text.StringWidthWithoutEscSequences(part))
				}
			}
		}
	}
}

// excess returns by how many characters columns of these widths exceed the terminal.
func (t *Table) excess(widths []int) int {
	excess := -t.style.width
	for _, w := range widths {
		excess += w + len(gap)
	}
	return excess
}

// Fits reports whether the rows fit the terminal without a break inside a word.
func (t *Table) Fits() bool { return t.style.width == 0 || t.excess(t.words) <= 0 }

// fit wraps the widest columns until the rows fit the terminal: between words, and if that is not enough, after the slashes of names,
// and then anywhere.
func (t *Table) fit() {
	widths := slices.Clone(t.widths)
	excess := t.excess(widths)
	for _, least := range []func(column int) int{
		func(i int) int { return max(narrowest, t.words[i]) },
		func(i int) int { return t.words[i] },
		func(i int) int { return t.parts[i] },
		func(int) int { return narrowest },
	} {
		for excess > 0 && narrow(widths, least) {
			excess--
		}
	}
	var columns []table.ColumnConfig
	for i, w := range widths {
		if w < t.widths[i] {
			columns = append(columns, table.ColumnConfig{Number: i + 1, WidthMax: w, WidthMaxEnforcer: wrap})
		}
	}
	t.writer.SetColumnConfigs(columns)
}

// wrap wraps a cell between words, words that are too long after slashes, and parts that are too long anywhere.
func wrap(cell string, width int) string {
	if strings.Contains(cell, "\x1b") {
		return text.WrapSoft(cell, width)
	}
	var lines []string
	for line := range strings.SplitSeq(cell, "\n") {
		last, words := "", strings.Fields(line)
		if len(words) > 0 {
			words[0] = line[:strings.Index(line, words[0])] + words[0] // it keeps its indent
		}
		for _, word := range words {
			if last != "" && text.StringWidth(last)+1+text.StringWidth(word) <= width {
				last += " " + word
				continue
			}
			if last != "" {
				lines, last = append(lines, last), ""
			}
			for part := range strings.SplitAfterSeq(word, "/") {
				if last != "" && text.StringWidth(last)+text.StringWidth(part) > width {
					lines, last = append(lines, last), ""
				}
				for last += part; text.StringWidth(last) > width; {
					head := text.Trim(last, width)
					lines, last = append(lines, head), last[len(head):]
				}
			}
		}
		lines = append(lines, last)
	}
	return strings.Join(lines, "\n")
}

// narrow takes one character from the widest column that is above its least width. It
// reports whether there is one.
func narrow(widths []int, least func(column int) int) bool {
	widest := -1
	for i, w := range widths {
		if w > least(i) && (widest < 0 || w > widths[widest]) {
			widest = i
		}
	}
	if widest < 0 {
		return false
	}
	widths[widest]--
	return true
}

// String returns the table's lines; the last one has no line end.
func (t *Table) String() string {
	if t.style.width > 0 {
		t.fit()
	}
	return t.writer.Render()
}
