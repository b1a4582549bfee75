// Package backoff has the waits between tries: each is twice as long as the one before, up to
// a longest one. It has no timer and no randomness: callers compare times in their own loops.
package backoff

import "time"

// maxDoublings keeps a wait that doubles from overflowing.
const maxDoublings = 16

// Next returns the wait that follows a wait; zero stands for no wait yet.
func Next(last, first, longest time.Duration) time.Duration {
	return min(max(2*last, first), longest)
}

// After returns the wait after a number of failures.
func After(failures int, first, longest time.Duration) time.Duration {
	return min(first<<min(max(failures-1, 0), maxDoublings), longest)
}

// Contest is the wait before the next repair of objects that another program keeps changing
// back: each repair costs a read of everything. The zero value waits for nothing.
type Contest struct {
	next time.Time
	wait time.Duration
}

// FirstContest and LongestContest bound the wait of a Contest.
const (
	FirstContest   = 100 * time.Millisecond
	LongestContest = time.Second
)

// Repaired notes a repair. The wait grows while repairs begin soon after they may.
func (c *Contest) Repaired(begun, ended time.Time) {
	if begun.Sub(c.next) > LongestContest {
		c.wait = 0
	}
	c.wait = Next(c.wait, FirstContest, LongestContest)
	c.next = ended.Add(c.wait)
}

// Wait returns the time until the next repair may begin; zero or less: now.
func (c *Contest) Wait(now time.Time) time.Duration { return c.next.Sub(now) }
