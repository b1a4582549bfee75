package label

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
)

// Index finds the values with labels that a selector may match.
type Index[T comparable] struct {
	byKey smallmap.Map[string, smallmap.Map[string, smallmap.Set[T]]]
}

// Insert files v under each of its labels.
func (x *Index[T]) Insert(labels *Set, v T) {
	for _, l := range labels.labels {
		values := x.byKey.Get(l.key)
		smallmap.AddTo(&values, l.value, v)
		x.byKey.Put(l.key, values)
	}
}

// Remove removes v, which Insert filed under these labels.
func (x *Index[T]) Remove(labels *Set, v T) {
	for _, l := range labels.labels {
		values := x.byKey.Get(l.key)
		smallmap.RemoveFrom(&values, l.value, v)
		if values.Len() == 0 {
			x.byKey.Remove(l.key)
		} else {
			x.byKey.Put(l.key, values)
		}
	}
}

// Candidates visits once each value with labels that the selector may match. If the selector
// requires no label, every value is a candidate: then it visits none and returns false.
func (x *Index[T]) Candidates(s *Selector, visit func(T)) bool {
	r, _ := x.rarest(s)
	if r == nil {
		return false
	}
	values := x.byKey.Get(r.key)
	if r.op == metav1.LabelSelectorOpExists {
		for _, some := range values.All() {
			for v := range some.All() {
				visit(v)
			}
		}
		return true
	}
	for _, value := range r.values {
		some := values.Get(value)
		for v := range some.All() {
			visit(v)
		}
	}
	return true
}

// AtMost returns an upper bound of the number of candidates: math.MaxInt, without a count,
// if the selector requires no label with a value.
func (x *Index[T]) AtMost(s *Selector) int {
	_, count := x.rarest(s)
	return count
}

// Len returns the number of label keys.
func (x *Index[T]) Len() int { return x.byKey.Len() }

// rarest returns the requirement that the fewest values can meet, and their number. If
// the selector requires no label with a value, it returns a required key, uncounted, or
// nil.
func (x *Index[T]) rarest(s *Selector) (best *requirement, count int) {
	count = math.MaxInt
	for i := range s.requirements {
		r := &s.requirements[i]
		switch r.op {
		case metav1.LabelSelectorOpIn:
			values, size := x.byKey.Get(r.key), 0
			for _, value := range r.values {
				some := values.Get(value)
				size += some.Len()
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
