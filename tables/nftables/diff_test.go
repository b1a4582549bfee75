package nftables

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestMinimalEdit(t *testing.T) {
	for _, c := range []struct {
		name        string
		old, wanted string
		deletes     []int
		kept        []int
		anchors     []int
	}{
		{"nothing", "", "", nil, []int{}, []int{}},
		{"same", "abc", "abc", nil, []int{0, 1, 2}, []int{1, 2, -1}},
		{"append", "ab", "abc", nil, []int{0, 1, -1}, []int{1, -1, -1}},
		{"prepend", "ab", "xab", nil, []int{-1, 0, 1}, []int{0, 1, -1}},
		{"replace", "abc", "axc", []int{1}, []int{0, -1, 2}, []int{2, 2, -1}},
		{"swap", "ab", "ba", []int{0}, []int{1, -1}, []int{-1, -1}},
		{"duplicates", "aabaa", "aaba", []int{4}, []int{0, 1, 2, 3}, []int{1, 2, 3, -1}},
		{"all new", "ab", "cd", []int{0, 1}, []int{-1, -1}, []int{-1, -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := minimalEdit(letters(c.old), letters(c.wanted))
			if script.deletes = slices.Clip(script.deletes); c.name == "duplicates" {
				// Which of equal rules goes does not matter.
				script.deletes = c.deletes[:len(script.deletes)]
			}
			if diff := cmp.Diff(c.deletes, script.deletes); diff != "" {
				t.Errorf("deletes: %s", diff)
			}
			if c.name == "swap" {
				return // either may move
			}
			if diff := cmp.Diff(c.kept, script.kept); diff != "" {
				t.Errorf("kept: %s", diff)
			}
			if diff := cmp.Diff(c.anchors, script.anchors()); diff != "" {
				t.Errorf("anchors: %s", diff)
			}
		})
	}
}

// Carrying the script out gives the wanted list, and it keeps as many as the
// longest common subsequence has.
func TestMinimalEditProperties(t *testing.T) {
	list := rapid.SliceOfN(rapid.SampledFrom(letters("abcdefgh")), 0, 24)
	rapid.Check(t, func(t *rapid.T) {
		old, wanted := list.Draw(t, "old"), list.Draw(t, "wanted")
		script := minimalEdit(old, wanted)
		if got := carryOut(old, wanted, script); !slices.Equal(got, wanted) {
			t.Fatalf("script %+v makes %v of %v, want %v", script, got, old, wanted)
		}
		kept := 0
		for _, k := range script.kept {
			if k >= 0 {
				kept++
			}
		}
		if want := commonLength(old, wanted); kept != want {
			t.Fatalf("script %+v from %v to %v keeps %d, the longest common subsequence is %d", script, old, wanted, kept, want)
		}
	})
}

func letters(s string) []string {
	out := make([]string, len(s))
	for i := range s {
		out[i] = s[i : i+1]
	}
	return out
}

// carryOut does what the kernel does: it deletes, then inserts before anchors.
func carryOut(old, wanted []string, script editScript) []string {
	type item struct {
		hash string
		old  int
	}
	var list []item
	for i, h := range old {
		if !slices.Contains(script.deletes, i) {
			list = append(list, item{h, i})
		}
	}
	anchors := script.anchors()
	for i, h := range wanted {
		if script.kept[i] >= 0 {
			continue
		}
		at := len(list)
		if anchors[i] >= 0 {
			at = slices.IndexFunc(list, func(it item) bool { return it.old == anchors[i] })
		}
		list = slices.Insert(list, at, item{h, -1})
	}
	out := make([]string, len(list))
	for i, it := range list {
		out[i] = it.hash
	}
	return out
}

// commonLength is the textbook length of the longest common subsequence.
func commonLength(a, b []string) int {
	row := make([]int, len(b)+1)
	for i := range a {
		diagonal := 0
		for j := range b {
			above := row[j+1]
			if a[i] == b[j] {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

func TestChunks(t *testing.T) {
	g := func(weights ...int) group {
		var out group
		for _, w := range weights {
			out = append(out, op{changes: make([]change, w)})
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
					weights = append(weights, o.weight())
				}
				got = append(got, weights)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
