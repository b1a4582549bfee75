package edit

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
)

func TestMinimal(t *testing.T) {
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
			script := Minimal(letters(c.old), letters(c.wanted))
			if script.Deletes = slices.Clip(script.Deletes); c.name == "duplicates" {
				// Which of equal rules goes does not matter.
				script.Deletes = c.deletes[:len(script.Deletes)]
			}
			if diff := cmp.Diff(c.deletes, script.Deletes); diff != "" {
				t.Errorf("deletes: %s", diff)
			}
			if c.name == "swap" {
				return // either may move
			}
			if diff := cmp.Diff(c.kept, script.Kept); diff != "" {
				t.Errorf("kept: %s", diff)
			}
			if diff := cmp.Diff(c.anchors, script.Anchors()); diff != "" {
				t.Errorf("anchors: %s", diff)
			}
		})
	}
}

// Carrying the script out gives the wanted list, and it keeps as many as the
// longest common subsequence has.
func TestMinimalProperties(t *testing.T) {
	list := rapid.SliceOfN(rapid.SampledFrom(letters("abcdefgh")), 0, 24)
	seeded.Check(t, func(t *rapid.T) {
		old, wanted := list.Draw(t, "old"), list.Draw(t, "wanted")
		script := Minimal(old, wanted)
		if got := carryOut(old, wanted, script); !slices.Equal(got, wanted) {
			t.Fatalf("script %+v makes %v of %v, want %v", script, got, old, wanted)
		}
		kept := 0
		for _, k := range script.Kept {
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

// carryOut edits as the kernel does: it deletes, then inserts before anchors.
func carryOut(old, wanted []string, script Script) []string {
	type item struct {
		hash string
		old  int
	}
	var list []item
	for i, h := range old {
		if !slices.Contains(script.Deletes, i) {
			list = append(list, item{h, i})
		}
	}
	anchors := script.Anchors()
	for i, h := range wanted {
		if script.Kept[i] >= 0 {
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

// Following the steps gives the wanted list, with as few as can be: where
// something goes and something comes, one step does both.
func TestStepsProperties(t *testing.T) {
	list := rapid.SliceOfN(rapid.SampledFrom(letters("abcdefgh")), 0, 24)
	seeded.Check(t, func(t *rapid.T) {
		old, wanted := list.Draw(t, "old"), list.Draw(t, "wanted")
		script := Minimal(old, wanted)
		got := slices.Clone(old)
		added, removed := 0, 0
		for _, s := range script.Steps() {
			switch s.Op {
			case Delete:
				got = slices.Delete(got, s.At, s.At+1)
				removed++
			case Insert:
				got = slices.Insert(got, s.At, wanted[s.New])
				added++
			case Replace:
				got[s.At] = wanted[s.New]
				added++
				removed++
			}
		}
		if !slices.Equal(got, wanted) {
			t.Fatalf("%+v makes %v of %v, want %v", script.Steps(), got, old, wanted)
		}
		common := commonLength(old, wanted)
		if added != len(wanted)-common || removed != len(old)-common {
			t.Fatalf("%+v adds %d and removes %d to make %v of %v", script.Steps(), added, removed, wanted, old)
		}
	})
}

func TestSteps(t *testing.T) {
	for _, c := range []struct {
		old, wanted string
		want        []Step
	}{
		{"", "", nil},
		{"abc", "abc", nil},
		{"abc", "axc", []Step{{Replace, 1, 1}}},
		{"abc", "abcd", []Step{{Insert, 3, 3}}},
		{"abc", "xabc", []Step{{Insert, 0, 0}}},
		{"abcd", "ad", []Step{{Delete, 1, 0}, {Delete, 1, 0}}},
		{"abcd", "axyzd", []Step{{Replace, 1, 1}, {Replace, 2, 2}, {Insert, 3, 3}}},
		{"ab", "", []Step{{Delete, 0, 0}, {Delete, 0, 0}}},
	} {
		if diff := cmp.Diff(c.want, Minimal(letters(c.old), letters(c.wanted)).Steps()); diff != "" {
			t.Errorf("%q to %q: %s", c.old, c.wanted, diff)
		}
	}
}
