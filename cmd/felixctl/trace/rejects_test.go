package trace

import (
	"fmt"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// TestFlowThatRejects: a flow whose packets the agent answers does not only drop them.
func TestFlowThatRejects(t *testing.T) {
	answers := policyflows.RejectActions()[0]
	for _, c := range []struct{ actions, effect, why string }{
		{"drop", "drop", "denied by a rule"},
		{"controller(max_len=142,id=61725)", "drop", "denied by a rule"},
		{fmt.Sprint(answers), "reject", "rejected by a rule"},
		{fmt.Sprintf("%v,controller(max_len=142,id=61725)", answers), "reject", "rejected by a rule"},
	} {
		for _, table := range []uint8{pipeline.TableEgressMetrics, pipeline.TableIngressMetrics} {
			f, err := flowtext.Parse(fmt.Sprintf("table=%d,priority=200,ip actions=%s", table, c.actions))
			if err != nil {
				t.Fatal(err)
			}
			if got := effectOf(f); got != c.effect {
				t.Errorf("%s: %q, want %q", c.actions, got, c.effect)
			}
			if got := new(bridge).closing(f, nil); got != c.why {
				t.Errorf("%s: %q, want %q", c.actions, got, c.why)
			}
		}
	}
}
