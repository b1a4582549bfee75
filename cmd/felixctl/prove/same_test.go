package prove

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// reread returns a state as a listing of it is read.
func reread(t *testing.T, s *dump.State) *dump.State {
	t.Helper()
	var text bytes.Buffer
	if err := dump.Write(&text, s, dump.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	out, err := dump.Parse(&text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSameRules: a state that is as wanted is proved without a walk, whatever rules other programs have behind felixlike's, and in chains that packets do not
// reach from there. It is not if it has an object that the walk would refuse.
func TestSameRules(t *testing.T) {
	m := modelOf(t, events(t, filepath.Join(cases, "ip-block-except.txtar")), "n1")
	for _, backend := range []string{config.NFTables, "maps", config.IPTablesNFT, config.OpenFlow} {
		want := stateOf(t, *m, backend)
		has := reread(t, want)
		equal := func(what string, same bool) {
			t.Helper()
			if got := sameRules(has, want); got != same {
				t.Errorf("%s, %s: the rules are the same: %v", backend, what, got)
			}
			r, err := Compare(t.Context(), Side{has, m}, Side{want, m}, Options{OnlyOurs: true})
			if same && (err != nil || len(r.Differences)+len(r.NotProved)+len(r.Classes) > 0) {
				t.Errorf("%s, %s: %+v, %v", backend, what, r, err)
			} else if !same && err == nil && len(r.Differences) == 0 && len(r.Classes) != 2 {
				t.Errorf("%s, %s: equal without a walk: %+v", backend, what, r)
			}
		}
		equal("as wanted", true)
		slices.Reverse(has.Tables)
		for _, table := range has.Tables {
			slices.Reverse(table.Sets)
		}
		equal("in another order", true)
		for _, state := range []*dump.State{has, want} {
			without := *state
			without.Tables, without.IPSets = nil, nil
			for _, table := range state.Tables {
				one := *table
				one.Sets = nil
				without.Tables = append(without.Tables, &one)
			}
			if backend != config.OpenFlow && sameRules(&without, &without) {
				t.Errorf("%s: the rules are the same although their sets are not listed", backend)
			}
		}
		for _, table := range has.Tables {
			if table.Dialect != dump.IPTables {
				continue
			}
			table.Chains = append(table.Chains, &dump.Chain{Name: "KUBE-SERVICES", Rules: []dump.Rule{{Foreign: "-j DNAT"}}})
			for _, c := range table.Chains {
				if c.Hook != nil {
					c.Rules = append(c.Rules, dump.Rule{Rule: tables.Rule{Action: tables.Jump{Chain: "KUBE-SERVICES"}}})
				}
			}
		}
		equal("with rules of others", true)
		for _, table := range has.Tables {
			for _, c := range table.Chains {
				if c.Hook != nil && len(c.Rules) > 0 && (judged(table) || table.Dialect == dump.IPTables) {
					c.Rules = slices.Insert(slices.Clone(c.Rules), 0, dump.Rule{Foreign: "meta random"})
				}
			}
		}
		want = has
		equal("with unknown rules on both sides", false)
	}
}

// BenchmarkSame compares the rules of 1,000 pods with 1,000 policies of 10 rules with the same, as a proof of the agent does.
func BenchmarkSame(b *testing.B) {
	for _, backend := range []string{config.NFTables, "maps", config.OpenFlow} {
		m := workloadModel(b, workload.W1)
		has, want := stateOf(b, *m, backend), stateOf(b, *m, backend)
		b.Run(backend, func(b *testing.B) {
			for b.Loop() {
				r, err := Compare(b.Context(), Side{has, m}, Side{want, m}, Options{OnlyOurs: true})
				if err != nil || len(r.Differences)+len(r.NotProved) > 0 {
					b.Fatal(r, err)
				}
			}
		})
	}
}
