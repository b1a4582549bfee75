package label

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
)

// SelectorIndex finds the selectors that may match a label set, without a try of every
// selector. It files a selector under one label that the selector requires: under each
// accepted value, or, if the selector accepts every value, under the key. Selectors that
// require no label are always candidates.
//
// Of several required labels it takes the one with the fewest selectors so far. Many
// policies require one common label and one label of their own: they are filed under
// their own.
type SelectorIndex[T comparable] struct {
	pairs smallmap.Map[pair, smallmap.Set[T]]
	keys  smallmap.Map[string, smallmap.Set[T]]
	rest  smallmap.Set[T]
}

// Insert files v under its selector.
func (x *SelectorIndex[T]) Insert(s *Selector, v T) {
	if r := x.emptiest(s, metav1.LabelSelectorOpIn); r != nil {
		for _, value := range r.values {
			smallmap.AddTo(&x.pairs, pair{r.key, value}, v)
		}
		return
	}
	if r := x.emptiest(s, metav1.LabelSelectorOpExists); r != nil {
		smallmap.AddTo(&x.keys, r.key, v)
		return
	}
	x.rest.Add(v)
}

// emptiest returns the requirement with that operator under which the fewest selectors
// are filed.
func (x *SelectorIndex[T]) emptiest(s *Selector, op metav1.LabelSelectorOperator) (best *requirement) {
	least := 0
	for i := range s.requirements {
		r := &s.requirements[i]
		if r.op != op {
			continue
		}
		if size := x.filed(r); best == nil || size < least {
			best, least = r, size
		}
	}
	return best
}

// filed counts the selectors filed under a requirement, and its values: each value takes
// an entry.
func (x *SelectorIndex[T]) filed(r *requirement) int {
	if r.op == metav1.LabelSelectorOpExists {
		under := x.keys.Get(r.key)
		return under.Len()
	}
	size := len(r.values)
	for _, value := range r.values {
		under := x.pairs.Get(pair{r.key, value})
		size += under.Len()
	}
	return size
}

// Remove removes v, which Insert filed under its selector.
func (x *SelectorIndex[T]) Remove(s *Selector, v T) {
	for i := range s.requirements {
		r := &s.requirements[i]
		switch r.op {
		case metav1.LabelSelectorOpIn:
			for _, value := range r.values {
				smallmap.RemoveFrom(&x.pairs, pair{r.key, value}, v)
			}
		case metav1.LabelSelectorOpExists:
			smallmap.RemoveFrom(&x.keys, r.key, v)
		}
	}
	x.rest.Remove(v)
}

// Len returns the number of labels and keys with selectors, plus the selectors that are
// always candidates.
func (x *SelectorIndex[T]) Len() int { return x.pairs.Len() + x.keys.Len() + x.rest.Len() }

// Candidates visits once each value with a selector that may match the labels. It takes a
// callback, because an iterator allocates if it is not inlined.
func (x *SelectorIndex[T]) Candidates(labels *Set, visit func(T)) {
	for _, l := range labels.labels {
		pair, key := x.pairs.Get(l), x.keys.Get(l.key)
		for v := range pair.All() {
			visit(v)
		}
		for v := range key.All() {
			visit(v)
		}
	}
	for v := range x.rest.All() {
		visit(v)
	}
}
