package traffic

import (
	"sync"
	"time"
)

// Meter notes when traffic got through.
type Meter struct {
	mu       sync.Mutex
	attempts int
	times    []time.Time
}

func (m *Meter) attempt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempts++
}

func (m *Meter) through() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times = append(m.times, time.Now())
}

// Attempts counts the attempts until now.
func (m *Meter) Attempts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.attempts
}

// Through counts what got through in a time.
func (m *Meter) Through(from, to time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, at := range m.times {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// Last returns when something got through the last time.
func (m *Meter) Last() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.times) == 0 {
		return time.Time{}
	}
	return m.times[len(m.times)-1]
}

// Gap is a time in which nothing got through.
type Gap struct{ From, To time.Time }

// Length is the length of the gap.
func (g Gap) Length() time.Duration { return g.To.Sub(g.From) }

// Longest returns the longest gap in a time. The ends of the time count as if something
// had got through then.
func (m *Meter) Longest(from, to time.Time) Gap {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest, last := Gap{From: from, To: from}, from
	see := func(at time.Time) {
		if at.Sub(last) > longest.Length() {
			longest = Gap{From: last, To: at}
		}
		last = at
	}
	for _, at := range m.times {
		if at.After(from) && at.Before(to) {
			see(at)
		}
	}
	see(to)
	return longest
}

// Forget forgets what got through before a time.
func (m *Meter) Forget(before time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.times[:0]
	for _, at := range m.times {
		if !at.Before(before) {
			kept = append(kept, at)
		}
	}
	m.times = kept
}
