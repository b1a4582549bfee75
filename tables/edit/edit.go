// Package edit finds the fewest changes that make one list into another. The
// table drivers use it to turn the rules that a chain has into those it should
// have, so that rules which stay keep their counters.
//
// It is pure, and tested by properties against a textbook implementation.
package edit

import "sort"

// Script says how to make a list of old hashes into new ones.
type Script struct {
	// Deletes are indices of the old list, ascending.
	Deletes []int
	// Kept has for each of the new list the index of the old one that stays
	// in its place, or -1 if it is to be inserted.
	Kept []int
}

// Anchors returns for each new index the old index before which it stands: the
// next one that stays, or -1 at the end. Inserting in ascending order, each
// before its anchor, gives the new order.
func (s Script) Anchors() []int {
	out := make([]int, len(s.Kept))
	next := -1
	for i := len(s.Kept) - 1; i >= 0; i-- {
		out[i] = next
		if s.Kept[i] >= 0 {
			next = s.Kept[i]
		}
	}
	return out
}

// Minimal returns the script with the fewest deletions and insertions: all
// that is not in a longest common subsequence. Equal hashes may repeat.
func Minimal(old, wanted []string) Script {
	kept := make([]int, len(wanted))
	for i := range kept {
		kept[i] = -1
	}
	head := 0
	for head < len(old) && head < len(wanted) && old[head] == wanted[head] {
		kept[head] = head
		head++
	}
	endOld, endNew := len(old), len(wanted)
	for endOld > head && endNew > head && old[endOld-1] == wanted[endNew-1] {
		endOld--
		endNew--
		kept[endNew] = endOld
	}
	if head < endOld && head < endNew {
		for _, p := range longestCommon(old[head:endOld], wanted[head:endNew]) {
			kept[head+p.new] = head + p.old
		}
	}
	return Script{Deletes: missing(len(old), kept), Kept: kept}
}

// pair is one common element of two lists, and the end of a common
// subsequence through prev.
type pair struct {
	old, new int
	prev     *pair
}

// longestCommon returns a longest common subsequence by the method of Hunt and
// Szymanski: the longest chain, growing in both indices, of all pairs of equal
// elements. It takes O(r log n) for r pairs, and r is near n here, since few
// rules of a chain are equal.
func longestCommon(old, wanted []string) []*pair {
	at := make(map[string][]int, len(wanted))
	for i, h := range wanted {
		at[h] = append(at[h], i)
	}
	var ends []*pair // ends[k] ends a common subsequence of length k+1 with the least new index
	for i, h := range old {
		// Descending, so that one old element is used once.
		for k := len(at[h]) - 1; k >= 0; k-- {
			j := at[h][k]
			n := sort.Search(len(ends), func(n int) bool { return ends[n].new >= j })
			p := &pair{old: i, new: j}
			if n > 0 {
				p.prev = ends[n-1]
			}
			if n == len(ends) {
				ends = append(ends, p)
			} else {
				ends[n] = p
			}
		}
	}
	if len(ends) == 0 {
		return nil
	}
	out := make([]*pair, 0, len(ends))
	for p := ends[len(ends)-1]; p != nil; p = p.prev {
		out = append(out, p)
	}
	return out
}

// missing returns the indices below n that are not in kept, ascending.
func missing(n int, kept []int) []int {
	stays := make([]bool, n)
	for _, k := range kept {
		if k >= 0 {
			stays[k] = true
		}
	}
	var out []int
	for i, s := range stays {
		if !s {
			out = append(out, i)
		}
	}
	return out
}
