package ovstest

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/flowtext"
)

//go:embed reference.tsv
var referenceFlows string

// Row is one flow of the reference pipeline.
type Row struct {
	ID, Scenario, Note string
	Flow               *flowtext.Flow
}

// Reference returns the rows of some scenarios, or of all if none is named.
func Reference(t *testing.T, scenarios ...string) []Row {
	t.Helper()
	var rows []Row
	for line := range strings.Lines(referenceFlows) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(cells) != 4 {
			t.Fatalf("malformed row %q", line)
		}
		flow, err := ParseFlow(cells[2])
		if err != nil {
			t.Fatalf("%s: %v", cells[0], err)
		}
		if len(scenarios) == 0 || slices.Contains(scenarios, cells[1]) {
			rows = append(rows, Row{ID: cells[0], Scenario: cells[1], Note: cells[3], Flow: flow})
		}
	}
	return rows
}

// Elsewhere explains the flows of the rows of some scenarios, or of all, and others by why: a scenario prints only the tables that it is about.
func Elsewhere(t *testing.T, why func(*flowtext.Flow) string, scenarios ...string) func(*flowtext.Flow) string {
	t.Helper()
	printed := map[string]bool{}
	for _, row := range Reference(t, scenarios...) {
		printed[row.Flow.String()] = true
	}
	return func(f *flowtext.Flow) string {
		if printed[f.String()] {
			return "printed by another scenario"
		}
		return why(f)
	}
}

// Comparison holds installed flows against rows of the reference.
type Comparison struct {
	// LeftOut says of rows, by id, why they are not to be installed.
	LeftOut map[string]string
	// Extra returns why a flow that is no row is there, "" if there is no reason.
	Extra func(*flowtext.Flow) string
}

// Check fails the test for every row that is not installed, or that a flow of
// higher priority hides, and for every flow beyond the rows without a reason. It
// logs how many it has for each reason.
func (c Comparison) Check(t *testing.T, installed []*flowtext.Flow, rows []Row) {
	t.Helper()
	have := map[string]bool{}
	for _, f := range installed {
		have[f.String()] = true
	}
	wanted := map[string]bool{}
	for _, row := range rows {
		wanted[row.Flow.String()] = true
		switch why, left := c.LeftOut[row.ID]; {
		case left && have[row.Flow.String()]:
			t.Errorf("%s is installed, though it is to be left out: %s", row.ID, why)
		case left:
		case !have[row.Flow.String()]:
			t.Errorf("%s is missing: %s", row.ID, row.Flow)
		default:
			for _, f := range installed {
				if f.Table == row.Flow.Table && f.Priority > row.Flow.Priority && f.Covers(row.Flow) {
					t.Errorf("%s is hidden: %s\nby %s", row.ID, row.Flow, f)
				}
			}
		}
	}
	extra := map[string]int{}
	for _, f := range installed {
		if wanted[f.String()] {
			continue
		}
		why := ""
		if c.Extra != nil {
			why = c.Extra(f)
		}
		if why == "" {
			t.Errorf("not explained: %s", f)
		}
		extra[why]++
	}
	for _, why := range slices.Sorted(maps.Keys(extra)) {
		t.Logf("%d more flows: %s", extra[why], why)
	}
}

// Installed returns the flows of the bridge as OpenFlow 1.3 dumps them.
func (b *Bridge) Installed() []*flowtext.Flow {
	b.t.Helper()
	out := b.Run("ovs-ofctl", "-O", "OpenFlow13", "--no-names", "--no-stats", "dump-flows", "unix:"+b.Management())
	var flows []*flowtext.Flow
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "actions=") {
			continue
		}
		f, err := ParseFlow(line)
		if err != nil {
			b.t.Fatal(err)
		}
		flows = append(flows, f)
	}
	return flows
}
