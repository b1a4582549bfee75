package policy

// selectorIndex finds the selectors that may match a set of labels without
// trying them all: a selector is filed under one label pair that it requires
// (under each value, if it accepts several), else under a key that it
// requires, else in the rest that is always tried.
type selectorIndex[T comparable] struct {
	pairs map[label]set[T]
	keys  map[string]set[T]
	rest  set[T]
}

func newSelectorIndex[T comparable]() selectorIndex[T] {
	return selectorIndex[T]{pairs: map[label]set[T]{}, keys: map[string]set[T]{}, rest: set[T]{}}
}

// insert files v under its selector.
func (x *selectorIndex[T]) insert(s selector, v T) {
	pairs := s.required()
	for _, pair := range pairs {
		addTo(x.pairs, pair, v)
	}
	if len(pairs) > 0 {
		return
	}
	if key, ok := s.requiredKey(); ok {
		addTo(x.keys, key, v)
		return
	}
	x.rest.add(v)
}

// remove undoes insert.
func (x *selectorIndex[T]) remove(s selector, v T) {
	for _, pair := range s.required() {
		dropFrom(x.pairs, pair, v)
	}
	if key, ok := s.requiredKey(); ok {
		dropFrom(x.keys, key, v)
	}
	delete(x.rest, v)
}

// candidates visits, each once, what may match the labels.
func (x *selectorIndex[T]) candidates(labels map[string]string, visit func(T)) {
	for k, v := range labels {
		for c := range x.pairs[label{k, v}] {
			visit(c)
		}
		for c := range x.keys[k] {
			visit(c)
		}
	}
	for c := range x.rest {
		visit(c)
	}
}
