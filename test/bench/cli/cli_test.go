package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/proofs"
)

// run runs `felixctl bench` with arguments.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := Commands()
	c.SilenceUsage, c.SilenceErrors = true, true
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func TestWrongUsageIsNamed(t *testing.T) {
	for want, args := range map[string][]string{
		`--profile: profile "huge": must be one of large, small, w1, w1-100`: {"run", "--profile", "huge"},
		`--backends: backend "ebpf": must be one of nftables`:                {"run", "--backends", "ebpf"},
		`--output "yaml": must be one of text, json, markdown`:               {"run", "-o", "yaml"},
		`--output "yaml": must be one of text, json, markdown, html`:         {"report", "x.json", "-o", "yaml"},
		"--output png: figures are written as SVG only: use svg":             {"report", "x.json", "-o", "png", "--out", "figures"},
		`profile "huge": must be one of`:                                     {"prove", "--profile", "huge"},
		"--limit: 1.5s is not a number":                                      {"prove", "--limit", "1.5s"},
		`no such file`:                                                       {"report", filepath.Join(t.TempDir(), "none.json")},
	} {
		if _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %s", args, err, want)
		}
	}
}

// TestTableOfProofs: each goal has its own word.
func TestTableOfProofs(t *testing.T) {
	text := proofTable(terminal.Style{}, []proofs.Measured{
		{A: "a", B: "b", Outcome: "equal", CPU: time.Second, Goal: proofs.TimeGoal, Memory: 2 << 30, TimeMet: true},
		{A: "a", B: "c", Outcome: "not completed", CPU: time.Minute, Goal: proofs.TimeGoal},
	})
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, want := range []string{"A B CPU GOAL MEMORY GOAL ELAPSED RESULT", "a b 1s 2s met 2048 MB 1024 MB missed 0s equal", "a c 1m0s 2s missed - 1024 MB missed 0s not completed"} {
		if len(lines) != 3 || strings.Join(strings.Fields(lines[i]), " ") != want {
			t.Fatalf("want %q in\n%s", want, text)
		}
	}
}

func TestReportPrintsWhatWasSaved(t *testing.T) {
	r := &bench.Report{Version: bench.ReportVersion, Command: "felixctl bench run", Rounds: 1, Backends: []string{"nftables"}}
	out := filepath.Join(t.TempDir(), "new", "result")
	if err := save(r, out); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(out + ".md")
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{"text": "Benchmark", "markdown": string(page), "json": `"command": "felixctl bench run"`} {
		got, err := run(t, "report", out+".json", "-o", format)
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("-o %s: error %v, output %q", format, err, got)
		}
		if format == "json" && !json.Valid([]byte(got)) {
			t.Errorf("no JSON: %s", got)
		}
	}
}

func TestReportWritesFiles(t *testing.T) {
	const source = "../testdata/report.json"
	dir := t.TempDir()
	wrote := func(args ...string) string {
		t.Helper()
		out, err := run(t, append([]string{"report", source}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	holds := func(path, want string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v, %.100q without %q", path, err, data, want)
		}
	}
	wrote("--out", filepath.Join(dir, "a.html"))
	holds("a.html", "<!DOCTYPE html>")
	wrote("-o", "html", "--out", filepath.Join(dir, "b"))
	holds("b", "<!DOCTYPE html>")
	wrote("--out", filepath.Join(dir, "a.md"))
	holds("a.md", "# Benchmark w1")
	wrote("-o", "svg", "--out", filepath.Join(dir, "pictures"))
	holds("pictures/load-cpu.svg", "<svg xmlns")
	out := wrote("--out", filepath.Join(dir, "all"))
	for path, want := range map[string]string{
		"report.html": "<!DOCTYPE html>", "report.md": "# Benchmark w1", "report.json": `"version": 2`,
		"figures/throughput.svg": "<svg xmlns",
	} {
		holds(filepath.Join("all", path), want)
	}
	if want := "written: " + filepath.Join(dir, "all", "figures", "*.svg") + " (19 figures)\n"; !strings.HasSuffix(out, want) {
		t.Errorf("printed %q, want %q at its end", out, want)
	}
	if _, err := run(t, "report", source, "-o", "svg"); err == nil || !strings.Contains(err.Error(), "--out has to name a directory") {
		t.Errorf("figures on a terminal: %v", err)
	}
	if page := wrote("-o", "html"); !strings.HasSuffix(page, "</html>\n") {
		t.Errorf("page: %.100q", page)
	}
}

func TestCompareExitCodes(t *testing.T) {
	const source = "../testdata/report.json"
	out, err := run(t, "compare", source, source)
	if err != nil || !strings.Contains(out, "0 better, 0 worse") {
		t.Errorf("a report with itself: %v, %s", err, out)
	}
	data, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	r, err := bench.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Results[0].CPUOfLoop {
		r.Results[0].CPU[i] *= 3
		r.Results[0].CPUOfLoop[i] *= 3
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := save(r, other); err != nil {
		t.Fatal(err)
	}
	if out, err := run(t, "compare", source, other+".json"); !errors.Is(err, ErrChanged) || !strings.Contains(out, "more CPU") {
		t.Errorf("three times the CPU: %v, %s", err, out)
	}
	for want, args := range map[string][]string{
		`--output "html": must be one of`: {source, source, "-o", "html"},
		"threshold -0.01: must be":        {source, source, "--threshold", "-1"},
		"no such file":                    {source, "none.json"},
	} {
		if _, err := run(t, append([]string{"compare"}, args...)...); err == nil || errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %s", args, err, want)
		}
	}
}
