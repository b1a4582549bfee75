package isolate

import (
	"testing"
	"time"
)

// TestRetry: the first wait doubles with each refusal, up to the longest.
func TestRetry(t *testing.T) {
	now := time.Unix(1000, 0)
	start, want := now, FirstWait
	var r Retry
	if !r.Due(now) {
		t.Error("an object that was never refused is not due")
	}
	for attempt := 1; attempt < 100; attempt++ {
		r.Refused(now)
		if r.Attempts != attempt || !r.Since.Equal(start) || !r.Next.Equal(now.Add(want)) {
			t.Fatalf("attempt %d: %+v, want a wait of %s", attempt, r, want)
		}
		if r.Due(r.Next.Add(-1)) || !r.Due(r.Next) {
			t.Fatalf("attempt %d: not due when its time has come", attempt)
		}
		now, want = r.Next, min(2*want, LongestWait)
	}
	before := r
	if r.RefusedAgain(now); r.Attempts != before.Attempts || !r.Since.Equal(before.Since) || !r.Next.Equal(now.Add(LongestWait)) {
		t.Errorf("refused again in the same attempt: %+v", r)
	}
	r = Retry{}
	if r.RefusedFor(now, time.Minute); !r.Next.Equal(now.Add(time.Minute)) {
		t.Errorf("a first wait of a minute ends at %s", r.Next)
	}
}
