package ctl

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
)

// TestUncountedRulesAreExplained: felixctl policies says why rules have no counters, if there are such.
func TestUncountedRulesAreExplained(t *testing.T) {
	for _, uncounted := range []bool{false, true} {
		var out strings.Builder
		hits := control.Hits{Node: "node1", Backend: "nftables", Rules: []control.RuleHits{
			{Policy: "networkpolicy/shop/db", Rule: "ingress[0]"}, {Policy: "shop/web", Rule: "ingress[0]", Uncounted: uncounted},
		}}
		if err := printHits(&out, hits, terminal.Text); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(out.String(), "in grants (nftables.layout)"); said != uncounted {
			t.Errorf("uncounted %v:\n%s", uncounted, out.String())
		}
	}
}
