package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/test/measure"
)

// result is the report of one fault with one backend. Times are in seconds.
type result struct {
	Fault   string `json:"fault"`
	Backend string `json:"backend"`
	// Faults are the invariants that did not hold; Known is why the row is known to fail.
	Faults     []string `json:"faults,omitempty"`
	Known      string   `json:"known,omitempty"`
	NotCounted bool     `json:"notCounted,omitempty"`
	// Leaks are the denied packets in the declared window, Outside those outside of it.
	// LastLeak is when the last one arrived, after the fault.
	Leaks    int     `json:"leaks"`
	Outside  int     `json:"outside"`
	LastLeak float64 `json:"lastLeak"`
	Window   float64 `json:"window"`
	// Packets, Opened and Stream are the longest times without an answer, without a new
	// connection, and without a block of a stream; Bound is that of the first two.
	Packets float64 `json:"packets"`
	Opened  float64 `json:"opened"`
	Stream  float64 `json:"stream"`
	Bound   float64 `json:"bound"`
	// Heal is the time from the fault until all is well.
	Heal float64  `json:"heal"`
	Said []string `json:"said,omitempty"`
	// Date and Load are of the run, Machine describes where it was.
	Date    string `json:"date"`
	Load    string `json:"load"`
	Machine string `json:"machine"`
}

// verdict is the result in one word or two.
func (r result) verdict() string {
	switch {
	case len(r.Faults) == 0:
		return "ok"
	case r.Known != "":
		return "known"
	case r.NotCounted:
		return "not counted"
	}
	return "FAILED"
}

func (r result) leaks() string {
	switch {
	case r.Outside > 0:
		return fmt.Sprintf("%d outside", r.Outside)
	case r.Leaks > 0 && r.LastLeak <= 0:
		return fmt.Sprintf("%d at once", r.Leaks) // before the command had ended
	case r.Leaks > 0:
		return fmt.Sprintf("%d in %.0f ms", r.Leaks, 1000*r.LastLeak)
	}
	return "0"
}

// line is the result in aligned columns.
func (r result) line() string {
	return fmt.Sprintf("%-16s %-26s %-11s  denied %-14s  gap %5.2f s, new %5.2f s, streams %5.2f s  healed %5.1f s  load %s",
		r.Backend, r.Fault, r.verdict(), r.leaks(), r.Packets, r.Opened, r.Stream, r.Heal, strings.Fields(r.Load)[0])
}

// summary says how many rows had which verdict.
func summary(results []result, left []string) string {
	counts := map[string]int{}
	var b strings.Builder
	for _, r := range results {
		counts[r.verdict()]++
		if v := r.verdict(); v != "ok" {
			fmt.Fprintf(&b, "%s: %s: %s: %s\n", v, r.Backend, r.Fault, strings.Join(r.Faults, "; "))
		}
	}
	fmt.Fprintf(&b, "%d rows: %d ok, %d known to fail, %d failed, %d not counted", len(results), counts["ok"], counts["known"], counts["FAILED"], counts["not counted"])
	if len(left) > 0 {
		fmt.Fprintf(&b, "; not run: %s", strings.Join(left, "; "))
	}
	return b.String() + "\n"
}

// The lines between which a document has the table.
const (
	tableBegin = "<!-- The table is written by make test-chaos. -->\n"
	tableEnd   = "<!-- End of the table. -->\n"
)

// writeReport puts results into a document, and into a JSON file beside it, in the place of
// those of the same fault and backend.
func writeReport(ctx context.Context, path string, results []result) error {
	m := measure.ThisMachine(ctx)
	data := strings.TrimSuffix(path, ".md") + ".json"
	var known []result
	text, err := os.ReadFile(data)
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("results of earlier runs: %w", err)
	}
	for _, r := range results {
		r.Machine = fmt.Sprintf("%s, %d processors, kernel %s", m.CPU, m.Cores, m.Kernel)
		known = slices.DeleteFunc(known, func(k result) bool { return k.Fault == r.Fault && k.Backend == r.Backend })
		known = append(known, r)
	}
	known = inOrder(known)
	if text, err = json.MarshalIndent(known, "", "  "); err != nil {
		return err
	}
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, begun := strings.Cut(string(document), tableBegin)
	_, tail, ended := strings.Cut(rest, tableEnd)
	if !begun || !ended {
		return fmt.Errorf("%s has no place for the table", path)
	}
	return errors.Join(
		os.WriteFile(data, append(text, '\n'), 0o644),
		os.WriteFile(path, []byte(head+tableBegin+"\n"+table(known)+"\n"+tableEnd+tail), 0o644),
	)
}

// inOrder sorts results as the table has them, and leaves out those of rows that are no more.
func inOrder(results []result) []result {
	place := map[string]int{}
	for i, r := range rows() {
		for j, b := range backends() {
			if len(r.backends) == 0 || contains(r.backends, b) {
				place[r.name+"\n"+b] = 1 + i*len(backends()) + j
			}
		}
	}
	at := func(r result) int { return place[r.Fault+"\n"+r.Backend] }
	results = slices.DeleteFunc(results, func(r result) bool { return at(r) == 0 })
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(at(a), at(b)) })
	return results
}

// mostSaid bounds the text of an agent in the table.
const mostSaid = 160

// labPath is the folder of a lab's node.
var labPath = regexp.MustCompile(`/run/felixlike-lab/[^/ ]+/nodes/[^/ ]+/`)

// table is the results as Markdown.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| fault | backend | result | denied packets | window | no packets | no new connections | bound | healed | the agent said | run |\n")
	b.WriteString("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |\n")
	machines := []string{}
	for _, r := range results {
		if !slices.Contains(machines, r.Machine) {
			machines = append(machines, r.Machine)
		}
		window := "none"
		if r.Window > 0 {
			window = measure.Duration(r.Window)
		}
		text := "nothing"
		if len(r.Said) > 0 {
			text = strings.Join(r.Said[:min(2, len(r.Said))], ". ")
		}
		text = strings.NewReplacer("|", "/", "\n", " ").Replace(labPath.ReplaceAllString(text, ""))
		if len(text) > mostSaid {
			text = text[:mostSaid] + "..."
		}
		result := r.verdict()
		if len(r.Faults) > 0 {
			result = strings.TrimSuffix("**"+result+"**: "+r.Known, ": ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %.2f s | %.2f s | %.1f s | %.1f s | %s | %s, load %s |\n",
			r.Fault, r.Backend, result, r.leaks(), window, r.Packets, r.Opened, r.Bound, r.Heal, text, r.Date, strings.Fields(r.Load)[0])
	}
	for _, m := range machines {
		fmt.Fprintf(&b, "\nMachine: %s.\n", m)
	}
	return b.String()
}

// TestReport merges results of two runs, in the order of the table.
func TestReport(t *testing.T) {
	path := t.TempDir() + "/R.md"
	if err := os.WriteFile(path, []byte("before\n"+tableBegin+tableEnd+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	first := []result{
		{Fault: "nft flush ruleset", Backend: "nftables", Leaks: 3, LastLeak: 0.02, Window: 0.1, Load: "1 2 3"},
		{Fault: "kill -9 agent", Backend: "openflow", Faults: []string{"x"}, Load: "1 2 3"},
		{Fault: "a row of long ago", Backend: "openflow", Load: "1 2 3"},
	}
	second := []result{{Fault: "kill -9 agent", Backend: "openflow", Load: "1 2 3", Said: []string{"not ready: a|b"}}}
	for _, results := range [][]result{first, second} {
		if err := writeReport(t.Context(), path, results); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, want := range map[int]string{0: "before", 5: "| kill -9 agent | openflow | ok | 0 ", 6: "| nft flush ruleset | nftables | ok | 3 in 20 ms | 100 ms |"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
	for _, part := range []string{"not ready: a/b", "\nafter\n"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	if strings.Contains(string(text), "long ago") || strings.Count(string(text), "kill -9 agent") != 1 {
		t.Errorf("results are left that no row has:\n%s", text)
	}
}
