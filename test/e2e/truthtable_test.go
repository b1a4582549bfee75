package e2e

import (
	"os"
	"testing"

	"github.com/felixlike/felixlike/lab/verify"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestTruthTable runs the sample over IPv4 and IPv6, twice in a row in one lab.
func TestTruthTable(t *testing.T) {
	needLab(t)
	file, err := os.Open("../truthtable/testdata/sample.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	steps, err := truthtable.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	for _, round := range []string{"first", "second"} {
		for _, family := range model.Families() {
			t.Run(round+"/IPv"+family.String(), func(t *testing.T) {
				err := verify.Run(t.Context(), l, steps, verify.Options{Family: family}, func(o verify.Outcome) error {
					for _, w := range o.Wrong {
						p := w.Result.Probe
						t.Errorf("%s: %s -> %s %s/%d: expected through=%v, %s after %d attempts",
							w.Step, p.From, p.To, p.Protocol, p.Port, w.Expected, w.Result.Reason, w.Result.Attempts)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
