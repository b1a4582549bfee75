package policyflows

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/model"
)

func ruleID(n int) RuleID {
	return RuleID{
		Policy:    model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: fmt.Sprintf("ns-%d", n%97), Name: fmt.Sprintf("policy-%d", n/10)},
		Direction: model.Ingress + model.Direction(n%2), Index: n % 10,
	}
}

// checkIDs says that every rule has an id of its own, which follows from the
// set of rules alone.
func checkIDs(t *testing.T, a *ids, rules map[RuleID]bool) {
	t.Helper()
	if len(a.taken) != len(rules) {
		t.Fatalf("%d ids for %d rules", len(a.taken), len(rules))
	}
	fresh := newIDs(a.hash)
	for _, r := range slices.SortedFunc(maps.Keys(rules), RuleID.Compare) {
		fresh.add(r)
		if a.get(r) == 0 {
			t.Fatalf("%s has no id", r)
		}
	}
	if !maps.Equal(a.taken, fresh.taken) {
		t.Fatal("the ids depend on the order of the changes")
	}
}

func TestIDsAreUniqueAndStable(t *testing.T) {
	hashes := map[string]func(RuleID) uint32{
		"as on a node": HashID,
		"colliding":    func(r RuleID) uint32 { return HashID(r) % 4096 },
		"at the end":   func(r RuleID) uint32 { return ^uint32(0) - HashID(r)%4096 },
	}
	for name, hash := range hashes {
		t.Run(name, func(t *testing.T) {
			a, rules, random := newIDs(hash), map[RuleID]bool{}, rand.New(rand.NewPCG(1, 2))
			known := map[RuleID]uint32{}
			note := func(changed []RuleID) {
				for _, r := range changed {
					known[r] = a.get(r)
				}
			}
			for n := range 10_000 {
				r := ruleID(random.IntN(2_000))
				if rules[r] {
					delete(rules, r)
					delete(known, r)
					note(a.remove(r))
				} else {
					rules[r] = true
					note(a.add(r))
				}
				if n%1_000 == 0 {
					checkIDs(t, a, rules)
				}
			}
			checkIDs(t, a, rules)
			for r := range rules {
				if known[r] != a.get(r) {
					t.Fatalf("nobody was told that %s has id %d, not %d", r, a.get(r), known[r])
				}
			}
		})
	}
}

func TestIDsSpread(t *testing.T) {
	seen := map[uint32]bool{}
	for n := range 20_000 {
		seen[HashID(ruleID(n))] = true
	}
	// Some 0.05 collisions are expected of 20,000 in 2^32.
	if len(seen) < 20_000-3 {
		t.Errorf("%d collisions", 20_000-len(seen))
	}
}

func TestIDsOfRulesAreThoseOfTheStore(t *testing.T) {
	s := New(Options{Flows: newRecorder()})
	var all []RuleID
	for n := range 50 {
		r := ruleID(n * 10)
		r.Direction, r.Index = model.Egress, 0
		all = append(all, r)
		s.SetPolicy(&model.Policy{ID: r.Policy, Egress: []model.Rule{{Action: model.Allow, AnyPeer: true}}})
	}
	known := IDs(all)
	for _, r := range s.rules {
		if known[r.id] != r.RuleID {
			t.Errorf("the id of %s is that of %s", r.RuleID, known[r.id])
		}
	}
	if len(known) != len(s.rules) {
		t.Errorf("%d ids for %d rules", len(known), len(s.rules))
	}
}
