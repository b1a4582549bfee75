package ovstest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDeviations: each deviation is of a row, and names tests that exist. The document has the same rows.
func TestDeviations(t *testing.T) {
	document, err := os.ReadFile("../../docs/results/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := Reference(t, "SNAT", "EGRESS")
	for id, d := range Deviations() {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.ID == id }) {
			t.Errorf("%s is no row", id)
		}
		if len(d.Tests) == 0 {
			t.Errorf("%s: it names no test", id)
		}
		line := "| " + id + " | " + d.Why + " | `" + strings.Join(d.Tests, "`, `") + "` |"
		if !strings.Contains(string(document), line) {
			t.Errorf("the document does not have\n%s", line)
		}
		for _, name := range d.Tests {
			folder, test, _ := strings.Cut(name, ": ")
			if !declares(t, folder, test) {
				t.Errorf("%s: %s has no %s", id, folder, test)
			}
		}
	}
}

// TestRowsAreCounted: the document says how many rows there are, and how many of them are installed by whom.
func TestRowsAreCounted(t *testing.T) {
	document, err := os.ReadFile("../../docs/results/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	all, other, multitenant := Reference(t), 0, 0
	for _, row := range all {
		switch {
		case strings.HasPrefix(row.Scenario, "OSH-"):
			multitenant++
		case row.ID >= "F028" && row.ID <= "F032":
			other++
		}
	}
	leftOut := len(Deviations()) + len([]string{"F002", "F006", "F066"})
	for _, text := range []string{
		fmt.Sprintf("have %d rows", len(all)),
		fmt.Sprintf("| installed by the agent | %d |", len(all)-other-multitenant-leftOut),
		fmt.Sprintf("F110 to F142 | %d |", multitenant),
		fmt.Sprintf("F028 to F032 | %d |", other),
		fmt.Sprintf("| left out | %d |", leftOut),
	} {
		if !strings.Contains(string(document), text) {
			t.Errorf("the document does not have %q", text)
		}
	}
}

// declares reports whether a folder has a test.
func declares(t *testing.T, folder, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), "\nfunc "+test+"(t *testing.T)")
	})
}
