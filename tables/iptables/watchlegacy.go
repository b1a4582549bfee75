package iptables

import (
	"context"
	"time"
)

// watchLegacy looks at the sizes of the tables: the legacy variant has no
// notifications.
func (w *watcher) watchLegacy(ctx context.Context, changed func()) error {
	s, err := openSizes(w.netns, w.families)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.sizes = s
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sizes = nil
		s.close()
	}()
	w.missed(changed)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		foreign, err := w.look()
		if err != nil {
			return err
		}
		if foreign {
			w.record(changed)
		}
	}
}

// look compares the sizes with the last ones, unless an Apply changes them.
func (w *watcher) look() (foreign bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sizes.err != nil {
		return false, w.sizes.err
	}
	if w.applying || !w.sizes.known || w.foreign {
		return w.foreign, nil
	}
	now, err := w.sizes.read()
	if err != nil {
		return false, err
	}
	for p := range places {
		w.foreign = w.foreign || now[p] != w.sizes.last[p] && w.sizes.due(p)
	}
	return w.foreign, nil
}
