package backoff

import (
	"testing"
	"time"
)

// TestNext: waits double, from the first one to the longest.
func TestNext(t *testing.T) {
	var wait time.Duration
	for i, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		if wait = Next(wait, 100, 1000); wait != want {
			t.Errorf("%d: %d, want %d", i, wait, want)
		}
		if got := After(i+1, 100, 1000); got != want {
			t.Errorf("after %d failures: %d, want %d", i+1, got, want)
		}
	}
	if got := After(1000, time.Second, time.Hour); got != time.Hour {
		t.Errorf("after 1000 failures: %s", got)
	}
}

// TestContest: the wait between repairs grows also if a repair takes long, and begins anew
// when others have stopped for a while.
func TestContest(t *testing.T) {
	var c Contest
	now := time.Unix(1000, 0)
	for _, want := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, time.Second, time.Second} {
		begun := now
		now = now.Add(5 * time.Second)
		c.Repaired(begun, now)
		if got := c.Wait(now); got != want {
			t.Errorf("wait %s, want %s", got, want)
		}
		now = now.Add(want)
	}
	begun := now.Add(2 * LongestContest)
	c.Repaired(begun, begun)
	if got := c.Wait(begun); got != FirstContest {
		t.Errorf("after a while: wait %s", got)
	}
}
