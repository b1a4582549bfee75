package iptables

import (
	"sync"
	"time"
)

// watcher is what Watch and Apply share.
type watcher struct {
	mu sync.Mutex
	// heard tells that others may have changed something since the last read, told
	// that changed was called for it.
	heard, told bool
	// applying tells that an Apply runs, applied that one has succeeded.
	applying, applied bool
	// asked tells that the Apply reads because something was heard. After it, the next
	// call of changed waits until next. The pause doubles while others go on.
	asked bool
	begun time.Time // when that Apply began
	pause time.Duration
	next  time.Time
	// own are the ports of our own programs: when they ended, zero while they run.
	own map[uint32]time.Time
	// sizes are those of the legacy variant's tables; nil unless they are watched.
	sizes *tableSizes
}

// begin notes that an Apply begins. It reports whether others may have changed
// something.
func (w *watcher) begin() (heard bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard, w.heard, w.told, w.applying = w.heard, false, false, true
	w.asked, w.begun = heard, time.Now()
	return heard
}

// A program that undoes what we write costs a read of all rules each time. firstPause and
// longestPause bound the time between the end of such an Apply and the next notice.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second
)

// rest sets the time of the next notice at the end of an Apply. The pause grows while each
// Apply begins soon after the one before it was allowed.
func (w *watcher) rest(now time.Time) {
	if !w.asked {
		return
	}
	if w.begun.Sub(w.next) > longestPause {
		w.pause = 0
	}
	w.pause = min(max(2*w.pause, firstPause), longestPause)
	w.next = now.Add(w.pause)
}

// missed notes that changes before now were not heard of.
func (w *watcher) missed(changed func()) {
	w.mu.Lock()
	applied := w.applied
	w.mu.Unlock()
	if applied {
		w.hear(changed)
	}
}

// hear notes a foreign change, and tells of it once, after a pause if others fight.
func (w *watcher) hear(changed func()) {
	w.mu.Lock()
	before := w.told
	w.heard, w.told = true, true
	wait := time.Until(w.next)
	w.mu.Unlock()
	switch {
	case before:
	case wait > 0:
		time.AfterFunc(wait, changed)
	default:
		changed()
	}
}
