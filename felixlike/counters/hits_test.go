package counters

import (
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
)

// TestLastHit: a hit has the time of the sample that saw its counter grow.
func TestLastHit(t *testing.T) {
	s := New(nil)
	begin := time.Unix(1000, 0)
	key, other := backend.RuleKey{Policy: "networkpolicy/shop/db", Rule: "ingress[0]"}, backend.RuleKey{Policy: "shop/db", Rule: "ingress[1]"}
	for _, step := range []struct {
		after         int
		hits, others  uint64
		want, wantTwo int
	}{
		{0, 5, 0, -1, -1},
		{10, 5, 0, -1, -1},
		{20, 6, 0, 20, -1},
		{30, 6, 1, 20, 30},
		{40, 0, 1, 20, 30}, // programmed anew
		{50, 2, 1, 50, 30},
	} {
		at := begin.Add(time.Duration(step.after) * time.Second)
		all, since := s.note(at, backend.Counted{key: control.RuleHits{Connections: step.hits}, other: control.RuleHits{Connections: step.others}})
		if !since.Equal(begin) {
			t.Errorf("since %s", since)
		}
		for i, want := range []int{step.want, step.wantTwo} {
			if wanted := begin.Add(time.Duration(want) * time.Second); want < 0 && !all[i].Last.IsZero() || want >= 0 && !all[i].Last.Equal(wanted) {
				t.Errorf("after %d s: rule %d was hit last at %s, want %d", step.after, i, all[i].Last, want)
			}
		}
	}
}
