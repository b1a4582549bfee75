package managers

import (
	"maps"
	"slices"
)

// dirty is a set of keys that wait for CompleteDeferredWork.
type dirty[K comparable] map[K]struct{}

func (d dirty[K]) add(k K) { d[k] = struct{}{} }

// take empties the set and returns its keys in order. A map that is only cleared keeps the room of the first load, over which each later
// call would go.
func (d *dirty[K]) take(compare func(a, b K) int) []K {
	keys := slices.SortedFunc(maps.Keys(*d), compare)
	*d = dirty[K]{}
	return keys
}
