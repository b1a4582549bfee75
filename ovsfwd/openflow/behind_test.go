package openflow_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/test/ovstest"
)

// slow is a switch that takes so many bundles in time. It counts the changes of each.
type slow struct {
	*openflow.Conn
	takes   int
	bundles []int
}

var errSlow = errors.New("out of time")

func (s *slow) Bundle(ctx context.Context, mods iter.Seq2[openflow.FlowMod, error]) error {
	if len(s.bundles) == s.takes {
		return errSlow
	}
	s.bundles = append(s.bundles, 0)
	return s.Conn.Bundle(ctx, func(yield func(openflow.FlowMod, error) bool) {
		for m, err := range mods {
			s.bundles[len(s.bundles)-1]++
			if !yield(m, err) {
				return
			}
		}
	})
}

// TestBehindOthers: however many flows there are without which packets take another way, all others come first, and each Apply goes on where the last one ran out
// of time.
func TestBehindOthers(t *testing.T) {
	b := ovstest.NewBridge(t)
	const many = openflow.BundleSize + 1
	flows, others := numbered(2*many), []openflow.Flow{{Table: 10, Priority: 7, Actions: to(20)}}
	table := openflow.NewFlowTable(owner, 1)
	table.Behind(func(table uint8, group string) bool { return table == 10 && group != "others" })
	apply := func(what string, takes int, want ...int) {
		t.Helper()
		sw := &slow{Conn: dial(t, b), takes: takes}
		table.Connect(sw)
		_, err := table.Apply(b.Context())
		if len(sw.bundles) != len(want) || (err != nil) != (takes < 9) {
			t.Fatalf("%s: bundles %v, %v", what, sw.bundles, err)
		}
		for i := range want {
			if sw.bundles[i] != want[i] {
				t.Errorf("%s: bundles %v, want %v", what, sw.bundles, want)
			}
		}
	}
	table.SetFlows("a", fixed(flows[:many]))
	table.SetFlows("b", fixed(flows[many:]))
	table.SetFlows("others", fixed(others))
	apply("in time for the others", 1, 1)
	apply("in time for one more", 1, openflow.BundleSize)
	apply("all", 9, openflow.BundleSize, 2)
	table.RemoveFlows("a")
	others[0].Actions = to(30)
	table.SetFlows("others", fixed(others))
	apply("removed, and another one changed", 2, 1, openflow.BundleSize)
	apply("the rest", 9, 1)
	table.RemoveFlows("b")
	table.RemoveFlows("others")
	apply("all removed", 9, openflow.BundleSize, 2)
	if left := b.Flows(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// TestRefusedBehindOthers: a refused group of flows behind others keeps nothing else back: no deletion, no addition, and not the last group.
func TestRefusedBehindOthers(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	table.Behind(func(table uint8, group string) bool { return table == 10 && group != "last" })
	table.Last("last", func(context.Context) error { return nil })
	flows, last := numbered(4), []openflow.Flow{{Table: 20, Priority: 7}}
	table.SetFlows("a", fixed(flows[:2]))
	apply(t, b, table, openflow.Result{Messages: 2, Added: 2})
	bad := flows[2]
	bad.Actions = []openflow.Action{openflow.GotoTable(5)}
	table.SetFlows("a", fixed(flows[:1]))
	table.SetFlows("bad", fixed([]openflow.Flow{bad}))
	table.SetFlows("c", fixed(flows[3:]))
	table.SetFlows("last", fixed(last))
	want := texts([]openflow.Flow{flows[0], flows[3], last[0]})
	for range 2 {
		_, err := table.Apply(b.Context())
		if refused := new(openflow.BundleError); !errors.As(err, &refused) || refused.Refusals[0].Mod.Key != "bad" {
			t.Errorf("got %v", err)
		}
		if diff := cmp.Diff(want, b.Flows()); diff != "" {
			t.Error(diff)
		}
	}
	table.SetFlows("bad", fixed(flows[2:3]))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1})
}
