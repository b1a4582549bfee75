package label

import (
	"maps"
	"testing"
)

// TestSets: two label sets differ even if the concatenation of their keys and values is equal.
// Labels from a file may contain any character.
func TestSets(t *testing.T) {
	p := NewSets()
	var all []*Set
	for _, labels := range []map[string]string{nil, {"a": "b"}, {"ab": ""}, {"": "ab"}, {"a": "b", "c": "d"}, {"a": "b\x01c\x01d"}} {
		s := p.Intern(labels)
		for _, o := range all {
			if s == o {
				t.Errorf("%v is %v", labels, o.labels)
			}
		}
		if p.Hold(s); p.Intern(maps.Clone(labels)) != s {
			t.Errorf("%v twice is two", labels)
		}
		for k, v := range labels {
			if got, ok := s.Get(k); !ok || got != v {
				t.Errorf("%v has %q for %q", labels, got, k)
			}
		}
		if len(s.labels) != len(labels) {
			t.Errorf("%v became %v", labels, s.labels)
		}
		all = append(all, s)
	}
	for _, s := range all {
		p.Release(s)
	}
	if len(p.byText) > 0 {
		t.Errorf("%v is left", p.byText)
	}
}
