package prove

import (
	"math/rand/v2"
	"testing"
)

// TestDiagrams compares sets of six variables with tables of all their values.
func TestDiagrams(t *testing.T) {
	const variables = 6
	type table [1 << variables]bool
	d, r := newDiagrams(), rand.New(rand.NewPCG(1, 1))
	sets, tables := []packets{everything, nothing}, []table{{}, {}}
	for i := range tables[0] {
		tables[0][i] = true
	}
	for v := range variables {
		var of table
		for i := range of {
			of[i] = i>>v&1 == 1
		}
		sets, tables = append(sets, d.variable(v)), append(tables, of)
	}
	seen := map[table]packets{}
	for range 20000 {
		i, j := r.IntN(len(sets)), r.IntN(len(sets))
		var is table
		var got packets
		gone := r.IntN(variables)
		op := r.IntN(6)
		switch op {
		case 0:
			got = d.and(sets[i], sets[j])
		case 1:
			got = d.or(sets[i], sets[j])
		case 2:
			got = d.without(sets[i], sets[j])
		case 3:
			got = d.not(sets[i])
		case 4:
			got = d.whatever([]int{gone}, sets[i])
		case 5:
			got = d.choice(gone, sets[i], sets[j])
		}
		for k := range is {
			a, b := tables[i][k], tables[j][k]
			is[k] = [6]bool{a && b, a || b, a && !b, !a, tables[i][k&^(1<<gone)] || tables[i][k|1<<gone], k>>gone&1 == 1 && a || k>>gone&1 == 0 && b}[op]
		}
		if before, known := seen[is]; known && before != got {
			t.Fatal("one set has two numbers")
		}
		seen[is] = got
		if empty := is == (table{}); empty != (got == nothing) {
			t.Fatal("an empty set is none")
		} else if !empty {
			k := 0
			for _, v := range d.one(got) {
				k |= 1 << v
			}
			if !is[k] {
				t.Fatal("a packet of the set is not in it")
			}
		}
		sets, tables = append(sets, got), append(tables, is)
	}
}
