package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/plot"
	"github.com/felixlike/felixlike/test/measure"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// Write writes the page of a report.
func Write(w io.Writer, r *bench.Report) error {
	t, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("template of the page: %w", err)
	}
	return t.Execute(w, contents(r))
}

// view is the data of the template.
type view struct {
	Title    string
	Style    template.CSS
	Facts    []fact
	Datapath []datapath
	Busy     string
	// Summary is the first section; its table is before the figures.
	Summary  *section
	Budgets  string
	Missed   []bench.Budget
	Figures  []figure
	Sections []section
}

type fact struct{ Name, Value string }

type figure struct {
	Name, Title, Caption string
	SVG                  template.HTML
}

// section is one of the report, with the data for its layout.
type section struct {
	ID string
	measure.Section
	Rows []row
}

type row struct {
	// First reports whether the subject of the row differs from the row above.
	First bool
	Cells []cell
}

type cell struct {
	Text  string
	Class string
	// Rows is the number of rows that the cell spans.
	Rows int
}

func contents(r *bench.Report) view {
	title, sections := r.Sections()
	v := view{
		Title: title, Style: template.CSS(pageCSS + plot.Style()), Facts: facts(r), Datapath: datapaths(r),
	}
	if len(sections) > 0 && sections[0].Heading == bench.SummaryHeading {
		s := sectionOf("summary", sections[0])
		v.Summary, sections = &s, sections[1:]
	}
	if r.Machine.Busy() {
		v.Busy = fmt.Sprintf("The load average was %s on %d cores when the run began: times and rates are of little worth. Measure again when nothing else runs.",
			r.Machine.LoadBefore, r.Machine.Cores)
	}
	v.Budgets, v.Missed = budgets(r)
	for _, f := range Figures(r) {
		// A figure escapes the report's words itself.
		v.Figures = append(v.Figures, figure{f.Name, f.Title, f.Caption, template.HTML(f.Inline())})
	}
	for i, s := range sections {
		v.Sections = append(v.Sections, sectionOf(fmt.Sprintf("section-%d", i+1), s))
	}
	return v
}

// sectionOf lays out a section. A first column that several rows share is printed once,
// where figures follow it.
func sectionOf(id string, s measure.Section) section {
	out := section{ID: id, Section: s}
	for i := range out.Text {
		out.Text[i] = typeset(out.Text[i])
	}
	first := 0
	for n, cells := range s.Rows {
		one := row{First: n == 0 || s.Left < 2 || cells[0] != s.Rows[n-1][0]}
		if one.First {
			first = n
		}
		for i, text := range cells {
			c := cell{Text: typeset(text), Class: class(s, i, text), Rows: 1}
			if i == 0 && !one.First {
				out.Rows[first].Cells[0].Rows++
				continue
			}
			one.Cells = append(one.Cells, c)
		}
		out.Rows = append(out.Rows, one)
	}
	return out
}

func class(s measure.Section, column int, text string) string {
	switch {
	case text == "MISSED":
		return "missed"
	case text == "met":
		return "met"
	case column >= s.Left:
		return "figure"
	case column == 0 && s.Left > 1:
		return "what"
	}
	return ""
}

// typeset has the signs that a terminal may not have.
func typeset(text string) string {
	return strings.NewReplacer(" -> ", " → ", "<= ", "≤\u00a0").Replace(text)
}

// Class returns that of a heading: figures have theirs at their side.
func (s section) Class(column int) string {
	if column >= s.Left {
		return "figure"
	}
	return ""
}

// facts describe the origin of the figures.
func facts(r *bench.Report) []fact {
	m := r.Machine
	rounds := "1"
	if r.Rounds > 1 {
		rounds = fmt.Sprintf("%d, backends in turn", r.Rounds)
	}
	all := []fact{
		{"CPU", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)},
		{"Kernel", m.Kernel},
		{"System", m.System},
		{"Revision", m.Revision},
		{"Measured", r.Started.Format(time.DateOnly)},
		{"Rounds", rounds},
		{"Load before", m.LoadBefore},
		{"Load after", m.LoadAfter},
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

// budgets returns the number of met budgets, and those that are not met.
func budgets(r *bench.Report) (string, []bench.Budget) {
	var missed []bench.Budget
	for _, b := range r.Budgets {
		if !b.Met {
			b.What, b.Limit = typeset(b.What), typeset(b.Limit)
			missed = append(missed, b)
		}
	}
	switch {
	case len(r.Budgets) == 0:
		return "", nil
	case len(missed) == 0:
		return fmt.Sprintf("All %d budgets are met.", len(r.Budgets)), nil
	}
	return fmt.Sprintf("%d of %d budgets are met; missed:", len(r.Budgets)-len(missed), len(r.Budgets)), missed
}

// Figures are those that a report has values for, in the order of the page.
func Figures(r *bench.Report) []plot.Figure {
	all := slices.Concat(packets(r), enforcement(r), loads(r), changes(r), memory(r), engine(r))
	return slices.DeleteFunc(all, func(f plot.Figure) bool { return f.Body.Empty() })
}
