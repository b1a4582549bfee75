package policyflows

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
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

// TestPrioritiesFollowTheOrder: of two rules that one packet can match, the earlier one has the higher
// priority. They may share one if they have the same action and there are many rules.
func TestPrioritiesFollowTheOrder(t *testing.T) {
	masks := rapid.Custom(func(t *rapid.T) portMask {
		first := rapid.Uint16Range(0, 40).Draw(t, "first")
		return rapid.SampledFrom(portMasks(model.PortRange{
			Protocol: rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP}).Draw(t, "protocol"),
			First:    first, Last: first + rapid.SampledFrom([]uint16{0, 0, 0, 3, 15, 60000}).Draw(t, "more"),
		})).Draw(t, "mask")
	})
	seeded.Check(t, func(t *rapid.T) {
		tier := rapid.SampledFrom([]orderedTier{adminPriorities(), baselinePriorities(), {10, 3, 2, 8, 8, 1}, {100, 3, 2, 90, 8, 1}, {65000, 200, 100, 64899, 1, 14}}).Draw(t, "tier")
		rules := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ordered {
			r := ordered{
				precedence: model.Precedence{
					Tier: rapid.Uint16Range(0, 400).Draw(t, "tier"), Priority: rapid.Float64Range(0, 12000).Draw(t, "priority"),
				},
				index:  rapid.IntRange(0, 50).Draw(t, "index"),
				action: rapid.SampledFrom([]model.Action{model.Allow, model.Deny, model.Pass, model.Reject}).Draw(t, "action"),
				within: rapid.SampledFrom([]string{"", "", "shop", "bank"}).Draw(t, "within"),
			}
			if rapid.IntRange(0, 3).Draw(t, "ports") > 0 {
				r.ports = rapid.SliceOfN(masks, 1, 3).Draw(t, "masks")
			}
			return r
		}), 0, 60).Draw(t, "rules")
		slices.SortFunc(rules, func(a, b ordered) int {
			return cmp.Or(a.precedence.Compare(b.precedence), cmp.Compare(a.index, b.index))
		})
		got := tier.assign(rules)
		for i, p := range got {
			if int(p) > tier.highest || p == 0 && len(rules) <= tier.highest {
				t.Fatalf("rule %d has priority %d", i, p)
			}
			for j, before := range got[:i] {
				alone := len(rules) <= tier.alone
				switch {
				case p == 0 || before == 0 || !alone && !meet(rules[i], rules[j]):
				case p > before, p == before && (alone || rules[i].action != rules[j].action):
					t.Fatalf("rules %d and %d have priorities %d and %d: %+v, %+v", j, i, before, p, rules[j], rules[i])
				}
			}
		}
	})
}

// meet reports whether one packet can match both rules.
func meet(a, b ordered) bool {
	if a.within != "" && b.within != "" && a.within != b.within {
		return false
	}
	return a.ports == nil || b.ports == nil || slices.ContainsFunc(a.ports, func(m portMask) bool {
		return slices.ContainsFunc(b.ports, func(o portMask) bool {
			return m.protocol == o.protocol && (m.value^o.value)&m.mask&o.mask == 0
		})
	})
}

// prioritiesOf counts the rules of each priority.
func prioritiesOf(tier orderedTier, rules []ordered) map[uint16]int {
	count := map[uint16]int{}
	for _, p := range tier.assign(rules) {
		count[p]++
	}
	return count
}

// TestRulesShareFewPriorities has many rules in each of the two ways in which rules match no packet in common:
// by their ports, and by the namespaces of their pods.
func TestRulesShareFewPriorities(t *testing.T) {
	got := prioritiesOf(adminPriorities(), differentPorts(1000))
	if most := slices.Max(slices.Collect(maps.Values(got))); len(got) > 20 || most > laneSize || got[0] > 0 {
		t.Errorf("25,000 rules have %d priorities, one of them %d rules; %d rules have none", len(got), most, got[0])
	}
	var rules []ordered
	for i, action := range []model.Action{model.Allow, model.Deny} {
		for namespace := range 3000 {
			rules = append(rules, ordered{precedence: model.Precedence{Priority: 1000}, index: i, action: action, within: strconv.Itoa(namespace)})
		}
	}
	if got := prioritiesOf(baselinePriorities(), rules); len(got) != 2 || got[180] != 3000 || got[179] != 3000 {
		t.Errorf("rules of 3,000 namespaces have priorities %v", got)
	}
	if got := prioritiesOf(baselinePriorities(), differentPorts(10)); got[0] > 0 {
		t.Errorf("%d baseline rules have no priority", got[0])
	}
}

// TestInsertedRuleMovesFewRules inserts a rule that matches everything before 5,000 rules. Only those of the widest
// step around it move.
func TestInsertedRuleMovesFewRules(t *testing.T) {
	for _, at := range []int{0, 2500, 4999} {
		rules := differentPorts(200)
		before := adminPriorities().assign(rules)
		first := rules[at]
		first.index, first.action, first.ports = -1, model.Reject, nil
		after := adminPriorities().assign(slices.Insert(slices.Clone(rules), at, first))
		after = slices.Delete(after, at, at+1)
		moved := 0
		for i := range before {
			if before[i] != after[i] {
				moved++
			}
		}
		if moved > 2048*25/14+25 {
			t.Errorf("a rule before rule %d moves %d rules", at, moved)
		}
	}
}

// differentPorts are rules of that many policies of 25, each about a port of its own. Their actions take turns.
func differentPorts(policies int) []ordered {
	var rules []ordered
	for i := range policies * 25 {
		rules = append(rules, ordered{
			precedence: model.Precedence{Tier: model.TierOfAdmin, Priority: float64(i / 25)}, index: i % 25,
			action: []model.Action{model.Allow, model.Deny, model.Pass}[i%3], ports: portMasks(tcp(uint16(i), uint16(i))),
		})
	}
	return rules
}

// BenchmarkSharedPriorities finds the priorities of 25,000 rules, as after each change of one.
func BenchmarkSharedPriorities(b *testing.B) {
	rules := differentPorts(1000)
	for b.Loop() {
		adminPriorities().assign(rules)
	}
}

func TestLanes(t *testing.T) {
	for _, c := range []struct{ rules, want int }{{0, 1}, {3900, 1}, {3901, 2}, {5000, 2}, {10_000, 4}, {50_000, 17}, {100_000, 18}} {
		if got := lanes(c.rules); got != c.want {
			t.Errorf("%d rules: %d lanes, want %d", c.rules, got, c.want)
		}
	}
	seen := map[uint16]bool{}
	for n := range uint16(maxLanes) {
		p := lanePriority(n)
		if seen[p] || p <= priorityRuleAction || p >= priorityRuleClosed {
			t.Errorf("lane %d has priority %d", n, p)
		}
		seen[p] = true
	}
	for rules := 4_000; rules <= 54_000; rules += 2_000 {
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

// TestPrioritiesAtTheirEnds: however large or small the numbers of policies are, and one rule below, at and above what a tier has room for, no priority wraps around: each is
// within the tier, and falls with the order. Rules without room have none.
func TestPrioritiesAtTheirEnds(t *testing.T) {
	extreme := []float64{math.Inf(-1), -1e300, math.MinInt32, -1, 0, 0.001, 999, 1000, 10_000, math.MaxUint16, math.MaxInt32, 1e300, math.Inf(1)}
	for name, tier := range map[string]orderedTier{"admin": adminPriorities(), "baseline": baselinePriorities(), "small": {10, 3, 2, 8, 8, 1}} {
		for _, count := range []int{len(extreme), tier.alone - 1, tier.alone, tier.alone + 1, tier.highest, tier.highest + 1, 70_000} {
			rules := make([]ordered, count)
			for i := range rules {
				at := i * len(extreme) / count
				rules[i] = ordered{precedence: model.Precedence{Tier: uint16(at * math.MaxUint16 / len(extreme)), Priority: extreme[at]}, index: i, action: []model.Action{model.Allow, model.Deny}[i%2]}
			}
			left, last := 0, -1
			assigned := tier.assign(rules)
			for i, p := range assigned {
				switch {
				case int(p) > tier.highest:
					t.Fatalf("%s, %d rules: rule %d has priority %d", name, count, i, p)
				case p == 0: // the pods of its policy are closed
					left++
					continue
				case last < 0:
				case p > assigned[last], p == assigned[last] && rules[i].action != rules[last].action:
					t.Fatalf("%s, %d rules: rules %d and %d have priorities %d and %d", name, count, last, i, assigned[last], p)
				}
				last = i
			}
			if count <= tier.alone && left > 0 || count > tier.highest && left == 0 {
				t.Errorf("%s, %d rules: %d have no priority", name, count, left)
			}
		}
	}
}
