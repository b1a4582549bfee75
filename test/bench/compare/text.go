package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/felixlike/felixlike/internal/terminal"
)

// JSON writes all of it as data.
func (c *Comparison) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(c)
}

// Text writes the changes as a table; with all, the unchanged figures, too.
func (c *Comparison) Text(w io.Writer, style terminal.Style, all bool) error {
	var b strings.Builder
	for _, line := range c.before() {
		fmt.Fprintln(&b, line)
	}
	rows := c.rows(all)
	if len(rows) > 0 {
		t := terminal.NewTable(style, headings()...)
		for _, k := range rows {
			verdict := k.Words
			switch k.Verdict {
			case Better:
				verdict = style.Good(verdict)
			case Worse:
				verdict = style.Bad(verdict)
			}
			cells := k.cells()
			t.Row(cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], verdict, cells[7])
		}
		fmt.Fprintf(&b, "\n%s\n\n", t)
	}
	for _, line := range c.after(all) {
		fmt.Fprintln(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown writes the same for a page.
func (c *Comparison) Markdown(w io.Writer, all bool) error {
	var b strings.Builder
	for _, line := range c.before() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	if rows := c.rows(all); len(rows) > 0 {
		t := table.NewWriter()
		header := table.Row{}
		for _, h := range headings() {
			header = append(header, strings.ToLower(h))
		}
		t.AppendHeader(header)
		for _, k := range rows {
			row := table.Row{}
			for _, cell := range k.cells() {
				row = append(row, cell)
			}
			t.AppendRow(row)
		}
		fmt.Fprintf(&b, "\n%s\n", t.RenderMarkdown())
	}
	for _, line := range c.after(all) {
		fmt.Fprintf(&b, "\n%s\n", line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func headings() []string {
	return []string{"WHAT", "BACKEND", "FIGURE", "OLD", "NEW", "RATIO", "VERDICT", "BY"}
}

func (k *Change) cells() []string {
	ratio := "-"
	if k.Ratio > 0 {
		ratio = fmt.Sprintf("%.2f x", k.Ratio)
	}
	return []string{k.What, k.Backend, string(k.Kind), k.Unit.Print(k.Old), k.Unit.Print(k.New), ratio, k.Words, k.How}
}

// rows are the changes that are shown.
func (c *Comparison) rows(all bool) []Change {
	if all {
		return c.Changes
	}
	return c.Changes[:c.Count(Better)+c.Count(Worse)]
}

// before are the lines above the table.
func (c *Comparison) before() []string {
	var lines []string
	for _, r := range c.Refused {
		lines = append(lines, "not compared: "+r)
	}
	for _, w := range c.Warnings {
		lines = append(lines, "note: "+w)
	}
	if c.LoopRatio > 0 {
		lines = append(lines, fmt.Sprintf("machine: the calibration loop takes %.2f times as long; times are compared as multiples of it", c.LoopRatio))
	}
	return lines
}

// after is the summary, and the method of the judgement.
func (c *Comparison) after(all bool) []string {
	sum := fmt.Sprintf("%d better, %d worse, %d within noise", c.Count(Better), c.Count(Worse), c.Count(Same))
	if n := c.Count(NotJudged); n > 0 {
		sum += fmt.Sprintf(", %d not judged (no rounds to judge by)", n)
	}
	if !all && c.Count(Same)+c.Count(NotJudged) > 0 {
		sum += "; --all shows every one"
	}
	lines := []string{sum}
	tested, ranges := 0, 0
	for _, k := range c.Changes {
		switch {
		case strings.HasPrefix(k.How, "p="):
			tested++
		case k.Verdict != NotJudged:
			ranges++
		}
	}
	percent := fmt.Sprintf("%.4g %%", 100*c.Threshold)
	if tested > 0 {
		lines = append(lines, fmt.Sprintf("Changed: Mann and Whitney's test sees it (p < %v), and the medians differ by %s. Of %d figures tested, some may seem changed by chance: repeat what matters.",
			alpha, percent, tested))
	}
	if ranges > 0 {
		lines = append(lines, fmt.Sprintf("With fewer than %d rounds no test is possible: changed means that even the two nearest rounds differ by %s. Smaller changes need more rounds (--rounds).",
			enoughRounds, percent))
	}
	return lines
}
