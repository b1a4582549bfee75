// Package eventually waits in tests for a condition that another goroutine or program brings about.
package eventually

import (
	"testing"
	"time"
)

// Patience bounds the wait. It is no limit of a duration: a busy machine must not fail a test.
const Patience = 3 * time.Minute

// True waits until the condition is true, and fails the test after Patience, with the texts that state returns then. It looks again
// after 1 ms at first, and every 20 ms in the end: a condition may start programs.
func True(t testing.TB, what string, condition func() bool, state ...func() string) {
	t.Helper()
	pause := time.Millisecond
	for deadline := time.Now().Add(Patience); !condition(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			for _, text := range state {
				what += "\n" + text()
			}
			t.Fatalf("not within %s: %s", Patience, what)
		}
		pause = min(pause+time.Millisecond/8, 20*time.Millisecond)
	}
}
