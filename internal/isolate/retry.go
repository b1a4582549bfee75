package isolate

import (
	"time"

	"github.com/felixlike/felixlike/internal/backoff"
)

// The waits between two tries of a refused object: the first one, which doubles with each
// refusal, and the longest.
const (
	FirstWait   = time.Second
	LongestWait = 5 * time.Minute
)

// Retry counts the refusals of one object. The zero value is due.
type Retry struct {
	// Since is the time of the first refusal, Next that of the next try.
	Since, Next time.Time
	// Attempts counts the refusals.
	Attempts int
}

// Refused records a refusal.
func (r *Retry) Refused(now time.Time) { r.RefusedFor(now, FirstWait) }

// RefusedFor records a refusal of an object with another first wait.
func (r *Retry) RefusedFor(now time.Time, first time.Duration) {
	if r.Attempts == 0 {
		r.Since = now
	}
	r.Attempts++
	r.Next = now.Add(backoff.After(r.Attempts, first, LongestWait))
}

// RefusedAgain records one more refusal in the same attempt: the wait begins anew.
func (r *Retry) RefusedAgain(now time.Time) {
	r.Next = now.Add(backoff.After(r.Attempts, FirstWait, LongestWait))
}

// Due reports whether it is time for the next try.
func (r *Retry) Due(now time.Time) bool { return !now.Before(r.Next) }
