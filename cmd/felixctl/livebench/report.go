package livebench

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/felixlike/felixlike/internal/measure"
)

// ReportVersion is the version of the format of a report in JSON.
const ReportVersion = 2

// Report is the result for a live node. Its JSON is that of a benchmark's
// report without any other measurement.
type Report struct {
	Version int `json:"version"`
	// Command reproduces the run.
	Command  string          `json:"command"`
	Started  time.Time       `json:"started"`
	Took     float64         `json:"tookSeconds"`
	Rounds   int             `json:"rounds"`
	Machine  measure.Machine `json:"machine"`
	Backends []string        `json:"backends"`
	Live     *Live           `json:"live"`
}

// Text writes the report as aligned tables.
func (r *Report) Text(w io.Writer) error { return r.document().WriteText(w) }

// Markdown writes the report as a page.
func (r *Report) Markdown(w io.Writer) error { return r.document().WriteMarkdown(w) }

// JSON writes the report as `felixctl bench report` reads it.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *Report) document() *measure.Document {
	return &measure.Document{
		Title:    "Benchmark: " + strings.Join(r.Backends, ", "),
		Sections: append(r.Live.Sections(r.Rounds), r.Machine.Section(r.Command, r.Started, r.Took)),
	}
}
