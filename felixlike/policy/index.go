package policy

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selectorIndex finds the selectors that may match a set of labels without
// trying them all: a selector is filed under one label pair that it requires
// (under each value, if it accepts several), else under a key that it
// requires, else in the rest that is always tried. Of several pairs or keys it
// is filed under the one with the fewest selectors yet, so that those of many
// policies that all name one common label and one of their own are found by
// their own.
type selectorIndex[T comparable] struct {
	pairs table[label, set[T]]
	keys  table[string, set[T]]
	rest  set[T]
}

// insert files v under its selector.
func (x *selectorIndex[T]) insert(s *selector, v T) {
	if r := x.emptiest(s, metav1.LabelSelectorOpIn); r != nil {
		for _, value := range r.values {
			addTo(&x.pairs, label{r.key, value}, v)
		}
		return
	}
	if r := x.emptiest(s, metav1.LabelSelectorOpExists); r != nil {
		addTo(&x.keys, r.key, v)
		return
	}
	x.rest.add(v)
}

// emptiest returns the requirement of that kind under which the fewest
// selectors are filed.
func (x *selectorIndex[T]) emptiest(s *selector, op metav1.LabelSelectorOperator) (best *requirement) {
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

// filed counts what is filed under a requirement, and its values, each of
// which takes a place.
func (x *selectorIndex[T]) filed(r *requirement) int {
	if r.op == metav1.LabelSelectorOpExists {
		under := x.keys.get(r.key)
		return under.len()
	}
	size := len(r.values)
	for _, value := range r.values {
		under := x.pairs.get(label{r.key, value})
		size += under.len()
	}
	return size
}

// remove undoes insert.
func (x *selectorIndex[T]) remove(s *selector, v T) {
	for i := range s.requirements {
		r := &s.requirements[i]
		switch r.op {
		case metav1.LabelSelectorOpIn:
			for _, value := range r.values {
				dropFrom(&x.pairs, label{r.key, value}, v)
			}
		case metav1.LabelSelectorOpExists:
			dropFrom(&x.keys, r.key, v)
		}
	}
	x.rest.remove(v)
}

// candidates visits, each once, what may match the labels. (Callbacks here and
// below, not iterators: these allocate where they are not inlined.)
func (x *selectorIndex[T]) candidates(labels *labelSet, visit func(T)) {
	for _, l := range labels.labels {
		pair, key := x.pairs.get(l), x.keys.get(l.key)
		for v := range pair.all() {
			visit(v)
		}
		for v := range key.all() {
			visit(v)
		}
	}
	for v := range x.rest.all() {
		visit(v)
	}
}

// labelIndex is the other way round: it finds what has labels that a selector
// may match.
type labelIndex[T comparable] struct {
	byKey table[string, table[string, set[T]]]
}

func (x *labelIndex[T]) insert(labels *labelSet, v T) {
	for _, l := range labels.labels {
		values := x.byKey.get(l.key)
		addTo(&values, l.value, v)
		x.byKey.put(l.key, values)
	}
}

func (x *labelIndex[T]) remove(labels *labelSet, v T) {
	for _, l := range labels.labels {
		values := x.byKey.get(l.key)
		dropFrom(&values, l.value, v)
		if values.len() == 0 {
			x.byKey.remove(l.key)
		} else {
			x.byKey.put(l.key, values)
		}
	}
}

// candidates visits, each once, what may match the selector. It reports false,
// and visits nothing, if that is everything there is.
func (x *labelIndex[T]) candidates(s *selector, visit func(T)) bool {
	r, _ := x.rarest(s)
	if r == nil {
		return false
	}
	values := x.byKey.get(r.key)
	if r.op == metav1.LabelSelectorOpExists {
		for _, some := range values.all() {
			for v := range some.all() {
				visit(v)
			}
		}
		return true
	}
	for _, value := range r.values {
		some := values.get(value)
		for v := range some.all() {
			visit(v)
		}
	}
	return true
}

// rarest returns the requirement that the fewest can meet, and how many that
// are, if the selector requires a label; else a key that it requires, without
// counting; else nothing.
func (x *labelIndex[T]) rarest(s *selector) (best *requirement, count int) {
	count = math.MaxInt
	for i := range s.requirements {
		r := &s.requirements[i]
		switch r.op {
		case metav1.LabelSelectorOpIn:
			values, size := x.byKey.get(r.key), 0
			for _, value := range r.values {
				some := values.get(value)
				size += some.len()
			}
			if size < count {
				best, count = r, size
			}
		case metav1.LabelSelectorOpExists:
			if best == nil {
				best = r
			}
		}
	}
	return best, count
}
