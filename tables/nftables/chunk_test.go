package nftables

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

func TestChunks(t *testing.T) {
	g := func(weights ...int) group {
		var out group
		for _, w := range weights {
			out = append(out, kernel.Op{Changes: make([]kernel.Change, w)})
		}
		return out
	}
	for _, c := range []struct {
		name string
		head []group
		tail group
		want [][]int
	}{
		{"nothing", nil, nil, nil},
		{"empty groups", []group{g(), g()}, nil, nil},
		{"one", []group{g(1, 2), g(3)}, g(4), [][]int{{1, 2, 3, 4}}},
		{"groups stay whole", []group{g(6), g(3, 3), g(4)}, nil, [][]int{{6}, {3, 3, 4}}},
		{"more than the limit", []group{g(1), g(9, 9), g(1)}, nil, [][]int{{1}, {9, 9}, {1}}},
		{"tail alone", []group{g(9)}, g(3, 3), [][]int{{9}, {3, 3}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got [][]int
			for _, chunk := range chunks(c.head, c.tail, 10) {
				var weights []int
				for _, o := range chunk {
					weights = append(weights, o.Weight())
				}
				got = append(got, weights)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
