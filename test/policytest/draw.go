package policytest

import (
	"pgregory.net/rapid"
)

// oneIn reports true once in n draws; it shrinks to false.
func oneIn(t *rapid.T, n int, label string) bool {
	return rapid.IntRange(0, n-1).Draw(t, label) == n-1
}

// pick draws one of the values; it shrinks to the first.
func pick[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

// times calls draw between low and high times and collects the results.
func times[T any](t *rapid.T, label string, low, high int, draw func(i int) T) []T {
	n := rapid.IntRange(low, high).Draw(t, label)
	var all []T
	for i := range n {
		all = append(all, draw(i))
	}
	return all
}
