package maps

import (
	"cmp"
	"maps"
	"slices"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// set is the desired state of one set or map.
type set struct {
	tables.LargeSet
	// desired has the values of the keys; of sets they are empty.
	desired map[string]string
	// dirty has what the kernel has of keys that have changed: nil for nothing.
	dirty map[string]*string
	// exists reports that the kernel has the set.
	exists bool
}

func (s *set) put(key, value string) {
	old, had := s.desired[key]
	if had && old == value {
		return
	}
	s.note(key, old, had)
	s.desired[key] = value
}

func (s *set) remove(key string) {
	if old, had := s.desired[key]; had {
		s.note(key, old, had)
		delete(s.desired, key)
	}
}

// note records what the kernel has of a key, unless it is recorded already.
func (s *set) note(key, value string, had bool) {
	if !s.exists {
		return
	}
	if _, noted := s.dirty[key]; noted {
		return
	}
	s.dirty[key] = nil
	if had {
		s.dirty[key] = &value
	}
}

// clean forgets all changes. A map that was large once takes long to walk and to clear.
func (s *set) clean() {
	if len(s.dirty) > 0 {
		s.dirty = map[string]*string{}
	}
}

// difference returns the elements to delete and to add, in order.
func (s *set) difference() (deletes, adds []kernel.Element) {
	if !s.exists {
		for key, value := range s.desired {
			adds = append(adds, kernel.Element{Key: key, Value: value})
		}
		slices.SortFunc(adds, kernel.CompareElements)
		return nil, adds
	}
	for _, key := range slices.Sorted(maps.Keys(s.dirty)) {
		old := s.dirty[key]
		value, wanted := s.desired[key]
		if wanted && old != nil && *old == value {
			continue
		}
		if old != nil {
			deletes = append(deletes, kernel.Element{Key: key, Value: *old})
		}
		if wanted {
			adds = append(adds, kernel.Element{Key: key, Value: value})
		}
	}
	return deletes, adds
}

// ops returns the operations that change elements.
func (s *set) ops(kind kernel.OpKind, elements []kernel.Element) (all []kernel.Op) {
	for part := range slices.Chunk(elements, kernel.ElementsPerMessage) {
		all = append(all, kernel.Op{Kind: kind, Name: s.Name, Large: &s.LargeSet, Elements: part})
	}
	return all
}

// read compares the desired elements with those of the kernel. It keeps only the differences.
func (s *set) read(c *kernel.Conn, table string) (differs bool, err error) {
	if s.Form == tables.Clients { // packets write them
		s.clean()
		return false, nil
	}
	var found map[string]struct{}
	matched := 0
	compare := func(e kernel.Element) {
		if value, ok := s.desired[e.Key]; ok && value == e.Value {
			matched++
		} else {
			value := e.Value
			s.dirty[e.Key] = &value
		}
		if found != nil {
			found[e.Key] = struct{}{}
		}
	}
	start := func() {
		s.clean()
		matched = 0
		if found != nil {
			clear(found)
		}
	}
	if err := c.ReadElements(table, &s.LargeSet, start, compare); err != nil {
		return false, err
	}
	if matched < len(s.desired) { // elements are missing: which ones takes the keys of all
		found = make(map[string]struct{}, matched)
		if err := c.ReadElements(table, &s.LargeSet, start, compare); err != nil {
			return false, err
		}
		for key := range s.desired {
			if _, ok := found[key]; !ok {
				s.dirty[key] = nil
			}
		}
	}
	return len(s.dirty) > 0, nil
}

// compare orders sets by name.
func compareSets(a, b *set) int { return cmp.Compare(a.Name, b.Name) }
