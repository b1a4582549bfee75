// Package results records the results of upstream specs: a file a run, with a line a
// spec, and from all of these files the tables in docs/results/conformance.md. It only reads
// and writes these files, and is tested by tables.
package results

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Marks around the tables in the document.
const (
	begin = "<!-- results -->\n"
	end   = "<!-- end of results -->\n"
)

// Passed is the outcome of a spec that passed.
const Passed = "passed"

// Spec is the result of one spec in one run.
type Spec struct {
	Name    string
	Outcome string
	Took    time.Duration
}

// Run is all that was run of a kind ("policy") on a backend with a mode of kube-proxy.
type Run struct {
	Kind, Backend, Proxy string
	Specs                []Spec
}

// name is the file's.
func (r *Run) name() string { return r.Kind + "-" + r.Backend + "-" + r.Proxy + ".tsv" }

// Save writes the run's file into a folder.
func (r *Run) Save(dir string) error {
	var text strings.Builder
	for _, s := range r.Specs {
		fmt.Fprintf(&text, "%s\t%s\t%.1f\n", s.Name, s.Outcome, s.Took.Seconds())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, r.name()), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	return nil
}

// Load reads all runs of a folder.
func Load(dir string) ([]Run, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.tsv"))
	if err != nil {
		return nil, err
	}
	var runs []Run
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("load results: %w", err)
		}
		r, err := parse(filepath.Base(file), string(text))
		if err != nil {
			return nil, fmt.Errorf("load results: %s: %w", file, err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

func parse(name, text string) (Run, error) {
	words := strings.Split(strings.TrimSuffix(name, ".tsv"), "-")
	if len(words) != 3 {
		return Run{}, errors.New("not named kind-backend-proxy.tsv")
	}
	r := Run{Kind: words[0], Backend: words[1], Proxy: words[2]}
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(fields) != 3 {
			return Run{}, fmt.Errorf("not name, outcome, seconds: %q", line)
		}
		seconds, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			return Run{}, err
		}
		r.Specs = append(r.Specs, Spec{Name: fields[0], Outcome: fields[1], Took: time.Duration(seconds * float64(time.Second))})
	}
	return r, nil
}

// Update writes the tables of all runs in a folder into the document.
func Update(document, dir string) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return fmt.Errorf("update %s: %w", document, err)
	}
	runs, err := Load(dir)
	if err != nil {
		return err
	}
	now, err := Insert(string(text), runs)
	if err != nil {
		return fmt.Errorf("update %s: %w", document, err)
	}
	return os.WriteFile(document, []byte(now), 0o644)
}

// Insert returns the document with the tables of the runs.
func Insert(document string, runs []Run) (string, error) {
	head, rest, ok := strings.Cut(document, begin)
	_, foot, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return "", fmt.Errorf("no %q and %q in it", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return head + begin + Tables(runs) + end + foot, nil
}

// Tables returns a summary of all runs and, per kind, a table of the seconds of each
// spec in each run.
func Tables(runs []Run) string {
	if len(runs) == 0 {
		return "Not run yet.\n"
	}
	var text strings.Builder
	text.WriteString("| specs | backend | kube-proxy | passed | failed | seconds of all specs |\n|---|---|---|---|---|---|\n")
	kinds := map[string][]Run{}
	for _, r := range runs {
		kinds[r.Kind] = append(kinds[r.Kind], r)
		passed, total := 0, time.Duration(0)
		for _, s := range r.Specs {
			if s.Outcome == Passed {
				passed++
			}
			total += s.Took
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %d | %d | %.0f |\n", r.Kind, r.Backend, r.Proxy, passed, len(r.Specs)-passed, total.Seconds())
	}
	for _, kind := range sorted(kinds) {
		fmt.Fprintf(&text, "\n### %s: seconds a spec\n\n", kind)
		table(&text, kinds[kind])
	}
	return text.String()
}

// table writes the seconds of each spec in each run of a kind; a spec that did not
// pass has its outcome in their place, one that was not run has none.
func table(text *strings.Builder, runs []Run) {
	text.WriteString("| spec |")
	specs := map[string][]string{}
	for i, r := range runs {
		fmt.Fprintf(text, " %s, %s |", r.Backend, r.Proxy)
		for _, s := range r.Specs {
			if specs[s.Name] == nil {
				specs[s.Name] = make([]string, len(runs))
			}
			specs[s.Name][i] = fmt.Sprintf("%.0f", s.Took.Seconds())
			if s.Outcome != Passed {
				specs[s.Name][i] = "**" + s.Outcome + "**"
			}
		}
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(runs)) + "\n")
	for _, name := range sorted(specs) {
		fmt.Fprintf(text, "| %s | %s |\n", strings.ReplaceAll(name, "|", `\|`), strings.Join(specs[name], " | "))
	}
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
