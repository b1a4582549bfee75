package driver

import "time"

// latency measures the time from the datastore's receipt of a change to the commit of its
// policy.
type latency struct {
	waiting []delivery
}

// delivery is a batch that changed the model: the time at which the datastore got it, and the
// tracker's count of updates with which it is programmed.
type delivery struct {
	seen     time.Time
	revision uint64
}

// maxDeliveries bounds the deliveries kept while policy cannot be programmed.
const maxDeliveries = 1000

// deliver notes a batch. Above the limit, new batches join the newest delivery.
func (l *latency) deliver(seen time.Time, revision uint64) {
	if seen.IsZero() {
		seen = time.Now()
	}
	if n := len(l.waiting); n == maxDeliveries {
		l.waiting[n-1].revision = revision
		return
	}
	l.waiting = append(l.waiting, delivery{seen: seen, revision: revision})
}

// programmed observes the batches that are programmed with this count of updates.
func (l *latency) programmed(revision uint64, at time.Time, observe func(time.Duration)) {
	n := 0
	for ; n < len(l.waiting) && l.waiting[n].revision <= revision; n++ {
		observe(max(at.Sub(l.waiting[n].seen), 0))
	}
	l.waiting = append(l.waiting[:0], l.waiting[n:]...)
}
