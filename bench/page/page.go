package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"github.com/felixlike/felixlike/bench"
	"github.com/felixlike/felixlike/bench/plot"
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

// view is what the template shows.
type view struct {
	Title     string
	Style     template.CSS
	Facts     []fact
	Datapath  []datapath
	Sentences []sentence
	Budgets   string
	Missed    []bench.Budget
	Figures   []figure
	Sections  []section
}

type fact struct{ Name, Value string }

type figure struct {
	Name, Title, Caption string
	SVG                  template.HTML
}

// section is one of the report, with what the page needs to lay it out.
type section struct {
	ID string
	bench.Section
	Rows []row
}

type row struct {
	// First reports whether what the row is about differs from the row above.
	First bool
	Cells []cell
}

type cell struct {
	Text  string
	Class string
}

func contents(r *bench.Report) view {
	title, sections := r.Sections()
	v := view{
		Title: title, Style: template.CSS(pageCSS + plot.Style()), Facts: facts(r), Datapath: datapaths(r),
		Sentences: summary(r),
	}
	v.Budgets, v.Missed = budgets(r)
	for _, f := range Figures(r) {
		// What a figure draws of the report's words is escaped by it.
		v.Figures = append(v.Figures, figure{f.Name, f.Title, f.Caption, template.HTML(f.Inline())})
	}
	for i, s := range sections {
		v.Sections = append(v.Sections, sectionOf(fmt.Sprintf("section-%d", i+1), s))
	}
	return v
}

func sectionOf(id string, s bench.Section) section {
	out := section{ID: id, Section: s}
	above := ""
	for _, cells := range s.Rows {
		one := row{First: cells[0] != above}
		above = cells[0]
		for i, text := range cells {
			c := cell{Text: text}
			switch {
			case text == "MISSED":
				c.Class = "missed"
			case text == "met":
				c.Class = "met"
			case i >= s.Left:
				c.Class = "figure"
			case i == 0:
				c.Class = "what"
			}
			one.Cells = append(one.Cells, c)
		}
		out.Rows = append(out.Rows, one)
	}
	return out
}

// Class returns that of a heading: figures have theirs at their side.
func (s section) Class(column int) string {
	if column >= s.Left {
		return "figure"
	}
	return ""
}

// facts are what a reader has to know of where the figures are from.
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

// budgets says how many are met, and returns those that are not.
func budgets(r *bench.Report) (string, []bench.Budget) {
	var missed []bench.Budget
	for _, b := range r.Budgets {
		if !b.Met {
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
