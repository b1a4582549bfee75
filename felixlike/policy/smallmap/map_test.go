package smallmap

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
)

// TestMap makes random operations on a Map and on a Go map, with fewer and more entries
// than fewEntries, and compares. A loop removes its current entry.
func TestMap(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		var got Map[int, string]
		want := map[int]string{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			k := rapid.IntRange(0, 2*fewEntries).Draw(t, "key")
			switch rapid.SampledFrom([]string{"put", "put", "remove", "loop"}).Draw(t, "step") {
			case "put":
				v := rapid.StringN(0, 2, -1).Draw(t, "value")
				got.Put(k, v)
				want[k] = v
			case "remove":
				got.Remove(k)
				delete(want, k)
			case "loop":
				seen := map[int]string{}
				for k, v := range got.All() {
					seen[k] = v
					if rapid.Bool().Draw(t, "remove") {
						got.Remove(k)
						delete(want, k)
					}
				}
				for k, v := range want {
					if seen[k] != v {
						t.Fatalf("a loop saw %q for %d, want %q", seen[k], k, v)
					}
				}
			}
			if got.Len() != len(want) || !maps.Equal(maps.Collect(got.All()), want) {
				t.Fatalf("%v, want %v", got, want)
			}
			if v, has := want[k]; got.Get(k) != v || got.Has(k) != has {
				t.Fatalf("%q %v for %d, want %q %v", got.Get(k), got.Has(k), k, v, has)
			}
		}
	})
}
