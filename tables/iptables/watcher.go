package iptables

import (
	"os/exec"
	"sync"
	"time"

	"github.com/felixlike/felixlike/internal/backoff"
	"github.com/felixlike/felixlike/model"
)

// watcher records foreign changes. Watch and Apply share it.
type watcher struct {
	variant  Variant
	netns    int
	families []model.Family
	// ours counts our entries in the tables, by the known state.
	ours func() [places]int

	mu sync.Mutex
	// foreign says that other programs may have changed something since the last read,
	// notified that changed was called for it.
	foreign, notified bool
	// applying says that an Apply runs, applied that one has succeeded.
	applying, applied bool
	// rereading says that the Apply reads because of a foreign change. After it, the next
	// call of changed waits.
	rereading bool
	begun     time.Time // when that Apply began
	contest   backoff.Contest
	// ports are those of our own programs: when they ended, zero while they run.
	ports map[uint32]time.Time
	// sizes are those of the legacy variant's tables; nil unless they are watched.
	sizes *tableSizes
}

func newWatcher(v Variant, netns int, families []model.Family, ours func() [places]int) *watcher {
	return &watcher{variant: v, netns: netns, families: families, ours: ours, ports: map[uint32]time.Time{}}
}

// begin records the begin of an Apply. It reports whether other programs may have changed
// something.
func (w *watcher) begin() (foreign bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	foreign, w.foreign, w.notified, w.applying = w.foreign, false, false, true
	w.rereading, w.begun = foreign, time.Now()
	return foreign
}

// missed records that the watch begins now, and has seen no change before.
func (w *watcher) missed(changed func()) {
	w.mu.Lock()
	applied := w.applied
	w.mu.Unlock()
	if applied {
		w.record(changed)
	}
}

// record records a foreign change. It calls changed once for all changes before the next
// Apply, after a pause if another program undoes our writes.
func (w *watcher) record(changed func()) {
	w.mu.Lock()
	before := w.notified
	w.foreign, w.notified = true, true
	wait := w.contest.Wait(time.Now())
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
	for port, at := range w.ports {
		if !at.IsZero() && now.Sub(at) > keepPort {
			delete(w.ports, port)
		}
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	port := uint32(c.Process.Pid)
	w.ports[port] = time.Time{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ports[port] = time.Now()
	}, nil
}

// isOwn reports whether the port is that of a program of ours.
func (w *watcher) isOwn(port uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.ports[port]
	return ok
}
