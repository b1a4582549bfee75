package iptables

import (
	"context"
	"os/exec"
	"sync"
	"time"

	"github.com/felixlike/felixlike/model"
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

// Watch calls changed when others may have changed our chains or the ways into
// them, and the next Apply reads everything. It starts no program. It returns when
// ctx ends, with its error, or when it cannot watch. It may run beside all other
// methods, but once only.
//
// The nft variant hears of every change from the kernel. The legacy variant
// compares sizes, so it misses a change that keeps the size of a table: callers
// invalidate the Table from time to time all the same.
func (t *Table) Watch(ctx context.Context, changed func()) error {
	watch := t.watchNFT
	if t.options.Variant == Legacy {
		watch = t.watchLegacy
	}
	err := watch(ctx, changed)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.watcher.hear(changed)
	return err
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

// keepPort is how long the port of a program that has ended counts as ours: its
// notifications are read later.
const keepPort = 5 * time.Second

// start starts a program of ours. The kernel gives the process's number as port
// to its first socket; one with another port counts as foreign, which costs a read.
func (w *watcher) start(c *exec.Cmd) (ended func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for port, at := range w.own {
		if !at.IsZero() && now.Sub(at) > keepPort {
			delete(w.own, port)
		}
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	port := uint32(c.Process.Pid)
	w.own[port] = time.Time{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.own[port] = time.Now()
	}, nil
}

// isOwn reports whether the port is that of a program of ours.
func (w *watcher) isOwn(port uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.own[port]
	return ok
}

// held counts what the legacy variant's tables hold of ours, in their entries: a
// chain has one at its head and one at its end besides its rules.
func (t *Table) held() (counts [places]int) {
	for _, c := range t.chains {
		for p, h := range c.have {
			if h != nil {
				counts[p] += len(h.hashes) + 2
			}
		}
	}
	for _, f := range model.Families() {
		if s := t.state[f]; s != nil {
			for e, now := range s.entries {
				counts[placeOf(f, e.table)] += len(now.texts)
			}
		}
	}
	return counts
}
