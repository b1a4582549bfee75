package chaos

import (
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/stopwatch"
)

// sampleEvery is the time between two samples of a machine.
const sampleEvery = 20 * time.Millisecond

// machine knows for which part of a time processes had no processor (test/stopwatch).
type machine struct {
	mu      sync.Mutex
	samples []sample
}

// sample is the time lost since the start, at a time.
type sample struct {
	at   time.Time
	lost time.Duration
}

// startMachine takes samples until the test ends.
func startMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{}
	watch := stopwatch.Start(t)
	ctx := t.Context()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			lap := watch.Lap(t)
			m.mu.Lock()
			m.samples = append(m.samples, sample{at: time.Now(), lost: lap.Lost})
			m.mu.Unlock()
			pause(ctx, sampleEvery)
		}
	}()
	t.Cleanup(func() { <-ended })
	return m
}

// net returns the length of a time without what was lost of it.
func (m *machine) net(from, to time.Time) time.Duration {
	took := to.Sub(from)
	return took - min(took, max(0, m.lost(to)-m.lost(from)))
}

// lost returns what was lost until a time: between two samples, in proportion.
func (m *machine) lost(at time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := sort.Search(len(m.samples), func(i int) bool { return m.samples[i].at.After(at) })
	if i == 0 {
		return 0
	}
	before := m.samples[i-1]
	if i == len(m.samples) {
		return before.lost
	}
	after := m.samples[i]
	share := float64(at.Sub(before.at)) / float64(after.at.Sub(before.at))
	return before.lost + time.Duration(share*float64(after.lost-before.lost))
}
