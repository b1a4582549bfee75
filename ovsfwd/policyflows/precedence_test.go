package policyflows

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
)

func TestPrioritiesOfTheReference(t *testing.T) {
	got := adminPriorities().assign([]ordered{{precedence: model.Precedence{Tier: 250, Priority: 10}}})
	if got[0] != 14000 {
		t.Errorf("admin rule: %d", got[0])
	}
	got = baselinePriorities().assign([]ordered{{precedence: model.Precedence{Priority: 10}}})
	if got[0] != 80 {
		t.Errorf("baseline rule: %d", got[0])
	}
}

// TestPrioritiesOfAdminPolicies: ClusterNetworkPolicies of the admin tier whose priorities differ by
// one are 14 OpenFlow priorities apart, one for each of a policy's first rules. A tier of Antrea's API
// has its own range.
func TestPrioritiesOfAdminPolicies(t *testing.T) {
	for priority, want := range map[float64]uint16{0: 14800, 10: 14660, 999: 814, 1000: 800} {
		got := adminPriorities().assign([]ordered{{precedence: model.Precedence{Tier: model.TierOfAdmin, Priority: priority}}})
		if got[0] != want {
			t.Errorf("priority %v: %d, want %d", priority, got[0], want)
		}
	}
	if got := adminPriorities().assign([]ordered{{precedence: model.Precedence{Tier: 50, Priority: 5.25}, index: 1}}); got[0] != 65000-200*50-525-1 {
		t.Errorf("priority 5.25: %d", got[0])
	}
}

func TestPrioritiesFall(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		tier := rapid.SampledFrom([]orderedTier{adminPriorities(), baselinePriorities(), {10, 3, 2, 8, 8, 1}, {100, 3, 2, 90, 8, 1}}).Draw(t, "tier")
		rules := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ordered {
			return ordered{
				precedence: model.Precedence{
					Tier: rapid.Uint16Range(0, 400).Draw(t, "tier"), Priority: rapid.Float64Range(0, 12000).Draw(t, "priority"),
				},
				index:  rapid.IntRange(0, 50).Draw(t, "index"),
				action: rapid.SampledFrom([]model.Action{model.Allow, model.Deny}).Draw(t, "action"),
			}
		}), 0, 60).Draw(t, "rules")
		slices.SortFunc(rules, func(a, b ordered) int {
			return cmp.Or(a.precedence.Compare(b.precedence), cmp.Compare(a.index, b.index))
		})
		got := tier.assign(rules)
		for i := 1; i < len(got); i++ {
			switch {
			case got[i-1] == 0 && got[i] != 0:
				t.Fatalf("rule %d has a priority, and the one before has none: %v", i, got)
			case got[i] > got[i-1]:
				t.Fatalf("priorities rise at %d: %v", i, got)
			case got[i] == got[i-1] && got[i] != 0 && (len(rules) <= tier.alone || rules[i].action != rules[i-1].action):
				t.Fatalf("rules %d and %d share a priority: %v", i-1, i, got)
			}
		}
		for i, p := range got {
			if int(p) > tier.highest || p == 0 && len(rules) <= tier.highest {
				t.Fatalf("rule %d has priority %d", i, p)
			}
		}
	})
}

func TestLanes(t *testing.T) {
	for _, c := range []struct{ rules, want int }{{0, 1}, {3900, 1}, {3901, 2}, {5000, 2}, {10_000, 4}, {100_000, 10}} {
		if got := lanes(c.rules); got != c.want {
			t.Errorf("%d rules: %d lanes, want %d", c.rules, got, c.want)
		}
	}
	for rules := 4_000; rules <= 30_000; rules += 2_000 {
		n := lanes(rules)
		fill, moved := make([]int, n), 0
		for i := range rules {
			l := lane(ruleID(i), n)
			fill[l]++
			if before := lane(ruleID(i), n-1); before != l {
				if int(l) != n-1 {
					t.Fatalf("rule %d moves from lane %d to %d, which is not new", i, before, l)
				}
				moved++
			}
		}
		if slices.Max(fill) > laneSize {
			t.Errorf("%d rules: lanes of %v", rules, fill)
		}
	}
}
