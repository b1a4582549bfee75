package cli

import (
	"fmt"
	"io"
	"strings"
)

// printTable writes rows of text in aligned columns, the first row as a heading.
func printTable(w io.Writer, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, text := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len([]rune(text)))
		}
	}
	s := styleFor(w)
	for n, row := range rows {
		var b strings.Builder
		for i, text := range row {
			fmt.Fprintf(&b, "%-*s  ", widths[i], text)
		}
		line := strings.TrimRight(b.String(), " ")
		if n == 0 {
			line = s.bold(line)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
