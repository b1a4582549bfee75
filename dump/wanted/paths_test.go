package wanted_test

import (
	"testing"

	"github.com/felixlike/felixlike/bench/workload"
	"github.com/felixlike/felixlike/dump"
	"github.com/felixlike/felixlike/dump/wanted"
	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/tablestest"
)

// maxVisits is how many times the kernel may visit a rule, in the mean, when it
// validates what is programmed.
const maxVisits = 6

// A change of one rule costs what is programmed, not the product of what hangs
// together: also on kernels that validate by following every path.
func TestPathsAreLinear(t *testing.T) {
	for name, m := range map[string]*control.Model{
		"w1": w1(t),
	} {
		for _, backend := range []string{felixlike.NFTables, felixlike.IPTables} {
			s, err := wanted.Of(m, backend)
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range s.Tables {
				chains, elements := walked(table)
				rules, visits := tablestest.Walks(chains, elements)
				t.Logf("%s, %s %s %s: %d rules, %d visits, %.1f a rule", name, backend, table.Family, table.Name, rules, visits, float64(visits)/float64(rules))
				if visits > maxVisits*rules {
					t.Errorf("%s, %s %s %s: the kernel visits %d rules %d times, at most %d times each is wanted", name, backend, table.Family, table.Name, rules, visits, maxVisits)
				}
			}
		}
	}
}

// walked returns the chains of a table, and the verdicts of its maps.
func walked(table *dump.Table) ([]tables.Chain, map[string][]tables.Action) {
	var chains []tables.Chain
	for _, c := range table.Chains {
		chain := tables.Chain{Name: c.Name}
		if c.Hook != nil {
			chain.Hook = &tables.Hook{}
		}
		for _, r := range c.Rules {
			chain.Rules = append(chain.Rules, r.Rule)
		}
		chains = append(chains, chain)
	}
	elements := map[string][]tables.Action{}
	for _, s := range table.Sets {
		if s.Verdicts {
			for _, e := range s.Elements {
				elements[s.Name] = append(elements[s.Name], e.Verdict)
			}
		}
	}
	return chains, elements
}

// w1 is the model of the benchmark's reference workload.
func w1(t *testing.T) *control.Model {
	t.Helper()
	for _, p := range workload.Profiles() {
		if p.Name == workload.W1 {
			m, _, err := wanted.FromEvents(workload.New(p).Events(), workload.Node, nil)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
	}
	t.Fatal("there is no reference workload")
	return nil
}
