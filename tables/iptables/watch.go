package iptables

import (
	"context"
	"os/exec"
	"time"

	"github.com/felixlike/felixlike/model"
)

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
