package policy

import (
	"maps"
	"slices"
)

// set is a set of anything comparable. The zero value can be read; add needs
// a made one.
type set[T comparable] map[T]struct{}

func (s set[T]) add(v T) { s[v] = struct{}{} }

func (s set[T]) has(v T) bool {
	_, ok := s[v]
	return ok
}

// addTo adds v to the set that m keeps for k, and makes one if there is none.
func addTo[K, T comparable](m map[K]set[T], k K, v T) {
	s, ok := m[k]
	if !ok {
		s = set[T]{}
		m[k] = s
	}
	s.add(v)
}

// dropFrom removes v from the set that m keeps for k, and the set once it is
// empty.
func dropFrom[K, T comparable](m map[K]set[T], k K, v T) {
	s := m[k]
	delete(s, v)
	if len(s) == 0 {
		delete(m, k)
	}
}

// sortedKeys returns the keys of m in the order of compare.
func sortedKeys[K comparable, V any](m map[K]V, compare func(K, K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}
