package policy

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
)

// TestTable does to a table and to a map the same things, on both sides of
// fewEntries, and compares; a loop removes the entries it is at.
func TestTable(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		var got table[int, string]
		want := map[int]string{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			k := rapid.IntRange(0, 2*fewEntries).Draw(t, "key")
			switch rapid.SampledFrom([]string{"put", "put", "remove", "loop"}).Draw(t, "step") {
			case "put":
				v := rapid.StringN(0, 2, -1).Draw(t, "value")
				got.put(k, v)
				want[k] = v
			case "remove":
				got.remove(k)
				delete(want, k)
			case "loop":
				seen := map[int]string{}
				for k, v := range got.all() {
					seen[k] = v
					if rapid.Bool().Draw(t, "remove") {
						got.remove(k)
						delete(want, k)
					}
				}
				for k, v := range want {
					if seen[k] != v {
						t.Fatalf("a loop saw %q for %d, want %q", seen[k], k, v)
					}
				}
			}
			if got.len() != len(want) || !maps.Equal(maps.Collect(got.all()), want) {
				t.Fatalf("%v, want %v", got, want)
			}
			if v, has := want[k]; got.get(k) != v || got.has(k) != has {
				t.Fatalf("%q %v for %d, want %q %v", got.get(k), got.has(k), k, v, has)
			}
		}
	})
}

// TestLabelSets tells label sets apart whose keys and values run together, as
// those of a file may.
func TestLabelSets(t *testing.T) {
	p := labelSets{byText: map[string]*labelSet{}}
	var all []*labelSet
	for _, labels := range []map[string]string{nil, {"a": "b"}, {"ab": ""}, {"": "ab"}, {"a": "b", "c": "d"}, {"a": "b\x01c\x01d"}} {
		s := p.intern(labels)
		for _, o := range all {
			if s == o {
				t.Errorf("%v is %v", labels, o.labels)
			}
		}
		if p.hold(s); p.intern(maps.Clone(labels)) != s {
			t.Errorf("%v twice is two", labels)
		}
		for k, v := range labels {
			if got, ok := s.get(k); !ok || got != v {
				t.Errorf("%v has %q for %q", labels, got, k)
			}
		}
		if len(s.labels) != len(labels) {
			t.Errorf("%v became %v", labels, s.labels)
		}
		all = append(all, s)
	}
	for _, s := range all {
		p.release(s)
	}
	if len(p.byText) > 0 {
		t.Errorf("%v is left", p.byText)
	}
}
