package bench

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/measure"
)

// TestSummaryMarksTheBest: the best of a row is marked, with what is within its noise; a single
// backend is not compared with anything.
func TestSummaryMarksTheBest(t *testing.T) {
	r := &Report{Backends: []string{"a", "b", "c"}}
	for backend, cpu := range map[string]measure.Series{"a": {1.1, 1.0, 1.2}, "b": {1, 0.9, 1.05}, "c": {2.5, 2.4, 2.6}} {
		r.Results = append(r.Results, Result{Backend: backend, Case: worker.FirstLoad, CPU: cpu})
	}
	want := [][]string{{"first load, CPU", "1.10 s ★", "1 s ★", "2.50 s", ""}}
	if diff := cmp.Diff(want, r.summary().Rows); diff != "" {
		t.Error(diff)
	}
	r.Backends = r.Backends[2:]
	if diff := cmp.Diff([][]string{{"first load, CPU", "2.50 s", ""}}, r.summary().Rows); diff != "" {
		t.Error(diff)
	}
}

// TestBusyMachineIsInTheBody: below the title of Markdown and text, and first in JSON; an idle machine has no warning.
func TestBusyMachineIsInTheBody(t *testing.T) {
	for load, want := range map[string]bool{"39.01 46.50 39.11": true, "0.64 0.66 2.46": false, "unknown": false, "": false} {
		r := &Report{Version: 2, Backends: []string{"nftables"}, Machine: measure.Machine{Cores: 2, LoadBefore: load}}
		var markdown, text, object strings.Builder
		for _, err := range []error{r.Markdown(&markdown), r.Text(&text), r.JSON(&object)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		lines := func(s string) []string { return strings.Split(s, "\n") }
		for _, all := range [][]string{lines(markdown.String()), lines(text.String())} {
			if strings.Contains(all[0], "busy") || strings.HasPrefix(all[2], "Uncertain: busy machine, load 39.01 on 2 cores") != want {
				t.Errorf("load %q: the report begins %q", load, all[:3])
			}
		}
		if first := lines(object.String())[1]; strings.Contains(first, "busy machine, load 39.01 on 2 cores") != want {
			t.Errorf("load %q: JSON begins %s", load, first)
		}
		if back, err := Decode([]byte(object.String())); err != nil || back.Machine.LoadBefore != load {
			t.Errorf("decoded: %v, %+v", err, back)
		}
	}
}

// TestCostsNameTheLoad: the table of figures in docs/results/costs.md says whether the machine was busy.
func TestCostsNameTheLoad(t *testing.T) {
	data, err := os.ReadFile("../../docs/results/benchmarks/w1.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/results/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(page), "|")
	if got := strings.Contains(text, "busy"); got != r.Machine.Busy() {
		t.Errorf("busy in costs.md: %v, in w1.json: load %s on %d cores", got, r.Machine.LoadBefore, r.Machine.Cores)
	}
}
