package preview

import (
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestLabelSetsAreAll: whatever labels a pod has, one of the sets is selected by the same selectors.
func TestLabelSetsAreAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	keys, values := []string{"a", "b", "c"}, []string{"x", "y", "z", "unnamed", ""}
	for round := range 300 {
		var named []*metav1.LabelSelector
		for range 1 + random.IntN(4) {
			s := &metav1.LabelSelector{}
			for range random.IntN(3) {
				r := metav1.LabelSelectorRequirement{Key: keys[random.IntN(3)], Operator: []metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}[random.IntN(4)]}
				if r.Operator == "In" || r.Operator == "NotIn" {
					r.Values = values[random.IntN(2) : 2+random.IntN(2)]
				}
				s.MatchExpressions = append(s.MatchExpressions, r)
			}
			named = append(named, s)
		}
		always, taken := "", []string(nil)
		if round%2 == 0 {
			always, taken = "b", []string{"y"}
		}
		selectors := parsed(named)
		sets, err := labelSets(selectors, always, taken)
		if err != nil {
			t.Fatal(err)
		}
		selected := func(set labels.Set) string {
			by := make([]byte, len(selectors))
			for i, s := range selectors {
				by[i] = '0'
				if s.Matches(set) {
					by[i] = '1'
				}
			}
			return string(by)
		}
		known := map[string]bool{}
		for _, set := range sets {
			if always != "" && (set[always] == "" || slices.Contains(taken, set[always])) {
				t.Fatalf("%v: a value of %s cannot be", set, always)
			}
			known[selected(set)] = true
		}
		for n := range 216 {
			set := labels.Set{}
			for i, key := range keys {
				if v := []int{n % 6, n / 6 % 6, n / 36}[i]; v < 5 {
					set[key] = values[v]
				}
			}
			if always != "" && (set[always] == "" || slices.Contains(taken, set[always])) {
				continue
			}
			if !known[selected(set)] {
				t.Fatalf("round %d: no set is selected as %v is, of %v by %v", round, set, sets, selectors)
			}
		}
		if len(known) != len(sets) && always == "" {
			t.Errorf("round %d: %d sets for %d kinds", round, len(sets), len(known))
		}
	}
}
