package felixlike

import "time"

// latency measures how long changes take from the datastore's notice of them
// to the commit of their policy.
type latency struct {
	waiting []delivery
}

// delivery is a batch that changed the model: seen by the datastore then, and
// programmed with so many updates of the tracker.
type delivery struct {
	seen  time.Time
	noted uint64
}

// maxDeliveries bounds what is remembered while policy cannot be programmed.
const maxDeliveries = 1000

// deliver takes note of a batch. Of too many, the newest are taken for one.
func (l *latency) deliver(seen time.Time, noted uint64) {
	if seen.IsZero() {
		seen = time.Now()
	}
	if n := len(l.waiting); n == maxDeliveries {
		l.waiting[n-1].noted = noted
		return
	}
	l.waiting = append(l.waiting, delivery{seen: seen, noted: noted})
}

// programmed observes the batches that are programmed with so many updates.
func (l *latency) programmed(noted uint64, at time.Time, observe func(time.Duration)) {
	n := 0
	for ; n < len(l.waiting) && l.waiting[n].noted <= noted; n++ {
		observe(max(at.Sub(l.waiting[n].seen), 0))
	}
	l.waiting = append(l.waiting[:0], l.waiting[n:]...)
}
