package felixlike

import (
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
)

// TestCountedByComment finds rules by whole comments, and by cut ones that fit one.
func TestCountedByComment(t *testing.T) {
	long := "shop/" + strings.Repeat("x", 150)
	c := Counted{
		{"shop/db", "ingress[0]"}: {}, {"shop/db", "ingress[1]"}: {Connections: 1},
		{long + "a", "ingress[0]"}: {}, {long, "egress[0]"}: {}, {long, "egress[1]"}: {},
	}
	for comment, packets := range map[string]uint64{
		"shop/db ingress[1]": 2, "shop/db": 4, "isolated ingress": 8, "shop/d": 16, long + "a": 32, long[:120]: 64,
	} {
		c.add(comment, packets)
	}
	for key, want := range map[RuleKey]uint64{
		{"shop/db", "ingress[0]"}: 0, {"shop/db", "ingress[1]"}: 3, {long + "a", "ingress[0]"}: 32, {long, "egress[0]"}: 0,
	} {
		if c[key].Connections != want {
			t.Errorf("%s: %d, want %d", key, c[key].Connections, want)
		}
	}
	if len(c) != 5 {
		t.Errorf("%d entries, want those that were there", len(c))
	}
}

// TestLastHit: a hit has the time of the sample that saw its counter grow.
func TestLastHit(t *testing.T) {
	s := newSampler()
	begin := time.Unix(1000, 0)
	key, other := RuleKey{"shop/db", "ingress[0]"}, RuleKey{"shop/db", "ingress[1]"}
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
		all, since := s.note(at, Counted{key: control.RuleHits{Connections: step.hits}, other: control.RuleHits{Connections: step.others}})
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
