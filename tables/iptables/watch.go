package iptables

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// watch records foreign changes until ctx ends or it cannot watch (see Table.Watch).
func (w *watcher) watch(ctx context.Context, changed func()) error {
	watch := w.watchNFT
	if w.variant == Legacy {
		watch = w.watchLegacy
	}
	err := watch(ctx, changed)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.record(changed)
	return err
}

// beforeRead reads the sizes of a family's tables before the tables are read in full, so
// that it finds later changes.
func (w *watcher) beforeRead(f model.Family) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sizes != nil {
		w.sizes.beforeRead(f)
	}
}

// afterRead records our entries in the tables, by the read.
func (w *watcher) afterRead(f model.Family) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sizes != nil {
		w.sizes.afterRead(f, w.ours())
	}
}

// end records the end of an Apply. Neither our writes nor a foreign change since a read of
// this Apply may have changed the entries of other programs.
func (w *watcher) end(r tables.Result, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applying, w.applied = false, w.applied || ok
	if w.rereading {
		w.contest.Repaired(w.begun, time.Now())
	}
	s := w.sizes
	if s == nil {
		return
	}
	read := s.before
	s.before, s.absent = 0, 0
	switch {
	case !ok:
		// The result of the writes is not known. The next Apply reads; it comes without a
		// notice, after a pause.
		s.known, w.foreign, w.notified = false, true, true
	case s.known && !r.FullRead && r.Messages == 0:
	default:
		w.foreign = s.afterWrite(read, w.ours()) || w.foreign
	}
}
