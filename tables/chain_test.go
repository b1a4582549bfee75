package tables

import (
	"fmt"
	"math"
	"testing"
)

// A tenant writes the content of rules, so a search for two with one hash must be infeasible.
func TestHashHas128Bits(t *testing.T) {
	var seen []map[rune]bool
	for i := range 10_000 {
		r := Rule{Action: Accept{}, Comment: fmt.Sprint("x/base ingress ", i)}
		hash := r.Hash()
		if got := HashInComment(r.KernelComment()); got != hash {
			t.Fatalf("the hash %s is read back as %s", hash, got)
		}
		for place, digit := range hash {
			if place == len(seen) {
				seen = append(seen, map[rune]bool{})
			}
			seen[place][digit] = true
		}
	}
	bits := 0.0
	for _, digits := range seen {
		bits += math.Log2(float64(len(digits)))
	}
	if bits < 128 {
		t.Errorf("%v bits", bits)
	}
}
