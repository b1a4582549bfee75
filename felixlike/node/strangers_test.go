package node

import (
	"strings"
	"testing"
	"time"
)

// Status shows packets that the tunnel guard has dropped within the last minute, but not those of before the agent's start.
func TestStrangers(t *testing.T) {
	s, now := &Strangers{node: "node1"}, time.Now()
	want := func(when time.Duration, text string) {
		t.Helper()
		found := s.Problems(now.Add(when))
		if (len(found) == 1) != (text != "") || text != "" && !strings.Contains(found[0].Reason, text) {
			t.Errorf("after %s: %v, want %q", when, found, text)
		}
	}
	want(0, "")
	s.add(100, now)
	want(time.Second, "")
	s.add(103, now.Add(10*time.Second))
	s.add(103, now.Add(20*time.Second))
	s.add(104, now.Add(30*time.Second))
	want(30*time.Second, "last minute: 4")
	want(80*time.Second, "last minute: 1")
	want(95*time.Second, "")
	s.add(104, now.Add(100*time.Second))
	want(100*time.Second, "")
}
