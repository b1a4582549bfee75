package smallmap

import "iter"

// Map is a map that keeps up to fewEntries entries in a slice. The zero Map is
// empty. A loop over it may remove the current entry, and change nothing else.
type Map[K comparable, V any] struct {
	few  []entry[K, V]
	many map[K]V
}

// fewEntries is the largest length of the slice. Most maps of felixlike/policy have one
// to four entries, and the smallest Go map takes hundreds of bytes: with Go maps, 25,000
// namespaces of four pods and three policies took 373 MB.
const fewEntries = 8

// entry has the key last: the value of a set is an empty struct, and Go pads a struct
// that ends with an empty field.
type entry[K comparable, V any] struct {
	value V
	key   K
}

func (m *Map[K, V]) find(k K) int {
	for i := range m.few {
		if m.few[i].key == k {
			return i
		}
	}
	return -1
}

// Get returns the value of k, or the zero value.
func (m *Map[K, V]) Get(k K) (v V) {
	if m.many != nil {
		return m.many[k]
	}
	if i := m.find(k); i >= 0 {
		return m.few[i].value
	}
	return v
}

// Has reports whether the map has the key.
func (m *Map[K, V]) Has(k K) bool {
	if m.many != nil {
		_, ok := m.many[k]
		return ok
	}
	return m.find(k) >= 0
}

// Put sets the value of k.
func (m *Map[K, V]) Put(k K, v V) {
	if m.many != nil {
		m.many[k] = v
		return
	}
	if i := m.find(k); i >= 0 {
		m.few[i].value = v
		return
	}
	if len(m.few) < fewEntries {
		m.few = append(m.few, entry[K, V]{v, k})
		return
	}
	m.many = make(map[K]V, 2*fewEntries)
	for _, e := range m.few {
		m.many[e.key] = e.value
	}
	m.many[k] = v
	m.few = nil
}

// Remove removes k, if the map has it.
func (m *Map[K, V]) Remove(k K) {
	if m.many != nil {
		delete(m.many, k)
		if len(m.many) == 0 {
			m.many = nil
		}
		return
	}
	if i := m.find(k); i >= 0 {
		last := len(m.few) - 1
		m.few[i] = m.few[last]
		m.few[last] = entry[K, V]{}
		m.few = m.few[:last]
	}
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return len(m.few) + len(m.many) }

// All yields the entries. It goes through the slice from the end: the last entry, which
// Remove puts in place of the removed one, was yielded before.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for i := len(m.few) - 1; i >= 0; i-- {
			if !yield(m.few[i].key, m.few[i].value) {
				return
			}
		}
		for k, v := range m.many {
			if !yield(k, v) {
				return
			}
		}
	}
}

// Keys yields the keys in the order of All.
func (m *Map[K, V]) Keys() iter.Seq[K] {
	return func(yield func(K) bool) {
		for k := range m.All() {
			if !yield(k) {
				return
			}
		}
	}
}

// Set is a set that is stored as a Map.
type Set[T comparable] struct{ Map[T, struct{}] }

// Add adds v.
func (s *Set[T]) Add(v T) { s.Put(v, struct{}{}) }

// AddTo adds v to the set of k.
func AddTo[K, T comparable](m *Map[K, Set[T]], k K, v T) {
	s := m.Get(k)
	s.Add(v)
	m.Put(k, s)
}

// RemoveFrom removes v from the set of k, and removes an empty set.
func RemoveFrom[K, T comparable](m *Map[K, Set[T]], k K, v T) {
	s := m.Get(k)
	s.Remove(v)
	if s.Len() == 0 {
		m.Remove(k)
		return
	}
	m.Put(k, s)
}
