package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/felixlike/felixlike/internal/backoff"
	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/tables"
)

const (
	// lookEvery is the shortest time between two looks at the sets' sizes.
	lookEvery = 500 * time.Millisecond
	// The pause after a look is lookShare times as long as the faster one of the last two
	// looks: a slow one may have waited for the processor. So looks take about a third of a
	// percent of a core at most, and the watch with Go's runtime stays below half a percent.
	// The kernel visits every bucket of a set to count its elements.
	lookShare = 300
	// longestPause bounds the pause.
	longestPause = 5 * time.Second
)

// watcher is the state that Watch and the applies share.
type watcher struct {
	mu sync.Mutex
	// foreign says that other programs may have changed something since the last read, notified
	// that changed was called for it.
	foreign, notified bool
	// applying says that an apply runs, applied that one has succeeded.
	applying, applied bool
	// sizes are how many elements the kernel's sets have, by their name there, and
	// round counts how often they were recorded.
	sizes map[string]uint32
	round int
	// rereading says that the apply reads because of a foreign change. As long as such
	// reads find nothing to repair, the next look waits until quiet has passed.
	rereading bool
	quiet     time.Duration
	next      time.Time
}

// maxQuiet bounds the time without looks.
const maxQuiet = time.Minute

// Watch calls changed when others may have changed the number of a set's elements,
// or destroyed it, and the next apply reads everything. The kernel reports no
// changes, so Watch asks for the sizes of all sets. It misses a change that keeps
// the size of a set: callers invalidate the Sets from time to time all the same.
// It returns when ctx ends, with its error, or when it cannot ask. It may run
// beside all other methods, but once only.
func (s *Sets) Watch(ctx context.Context, changed func()) error {
	conn, err := nfnetlink.Dial(s.options.NetNS)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is written by it
	w := &s.watcher
	w.missed()
	pause, last := time.Duration(0), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		start := time.Now()
		if err := w.look(conn); err != nil {
			return err
		}
		took := time.Since(start)
		pause, last = pauseAfter(took, last), took
		if w.notify() {
			changed()
		}
	}
}

// pauseAfter returns the pause after a look, from its duration and that of the look
// before it.
func pauseAfter(took, last time.Duration) time.Duration {
	return min(max(lookEvery, lookShare*min(took, last)), longestPause)
}

// missed records that changes before now were not seen.
func (w *watcher) missed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.foreign = w.foreign || w.applied
}

// notify reports whether changed has to be called.
func (w *watcher) notify() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	notify := w.foreign && !w.notified
	w.notified = w.foreign
	return notify
}

// begin records the begin of an apply. It reports whether other programs may have
// changed something.
func (w *watcher) begin() (foreign bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	foreign, w.foreign, w.notified, w.applying = w.foreign, false, false, true
	w.rereading = foreign
	return foreign
}

// end records the end of an apply, and the sizes of the sets.
func (w *watcher) end(s *Sets, r tables.Result, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applying, w.applied = false, w.applied || ok
	w.round++
	if w.rereading && len(r.Repaired) == 0 {
		w.quiet = backoff.Next(w.quiet, time.Second, maxQuiet)
	} else {
		w.quiet = 0
	}
	w.next = time.Now().Add(w.quiet)
	switch {
	case !ok || s.guest:
		// The kernel's state is not known; the next apply that succeeds reads it.
		w.sizes = nil
	case w.sizes == nil || r.FullRead || r.Messages > 0:
		w.sizes = s.sizes()
	}
}

// sizes returns how many elements the desired sets have.
func (s *Sets) sizes() map[string]uint32 {
	out := make(map[string]uint32, len(s.sets))
	for name, t := range s.sets {
		if t.desired && t.refusal == nil {
			out[ipsets.KernelName(name)] = uint32(t.size())
		}
	}
	return out
}

// size returns how many elements the set has: a network of all addresses is two.
func (s *set) size() int {
	n, all := len(s.members), everyAddress(s.spec.Family)
	if _, ok := s.members[all]; !ok {
		return n
	}
	n--
	for e := range Elements(all) {
		if _, ok := s.members[e]; !ok {
			n++
		}
	}
	return n
}

// look compares the sizes of all sets with the recorded sizes, unless an apply changes
// the sets meanwhile.
func (w *watcher) look(conn *nfnetlink.Conn) error {
	w.mu.Lock()
	desired, round, skip := w.sizes, w.round, w.applying || w.foreign || len(w.sizes) == 0 || time.Now().Before(w.next)
	w.mu.Unlock()
	if skip {
		return nil
	}
	same := 0
	var m nfnetlink.Messages
	writeList(&m, "")
	code, err := conn.Dump(&m, func(attributes []byte) {
		name, size := parseSize(attributes)
		if n, ok := desired[string(name)]; ok && n == size {
			same++
		}
	})
	if err == nil && code != 0 {
		err = errorOf(code)
	}
	if err != nil {
		return fmt.Errorf("ask for the sizes of the kernel's ip sets: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.applying && w.round == round && same != len(desired) {
		w.foreign = true
	}
	return nil
}

// parseSize reads the name and the number of elements of a listed set.
func parseSize(attributes []byte) (name []byte, size uint32) {
	for attr, value := range nfnetlink.Attributes(attributes) {
		switch attr {
		case attrSetName:
			name, _, _ = bytes.Cut(value, []byte{0})
		case attrData:
			for attr, value := range nfnetlink.Attributes(value) {
				if attr == attrElements && len(value) == 4 {
					size = binary.BigEndian.Uint32(value)
				}
			}
		}
	}
	return name, size
}
