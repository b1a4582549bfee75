package vswitchd

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// watchEvery is the time between two questions of a Watcher, and the time that
	// ovs-vswitchd has for the answer.
	watchEvery = time.Second
	// tolerated is the time without an answer that is no problem yet: ovs-vswitchd answers
	// late while it starts or takes many flows.
	tolerated = 5 * time.Second
)

// Watcher asks ovs-vswitchd for its version at intervals, to notice that it hangs: then
// connections stay open, and no call of the agent fails for many seconds.
type Watcher struct {
	client *Client

	mu sync.Mutex
	// silent is the time of the first question without an answer, or zero; err is the
	// error of the last one.
	silent time.Time
	err    error
}

// NewWatcher returns a watcher of the daemon with this run directory.
func NewWatcher(rundir string) *Watcher { return &Watcher{client: New(rundir, "")} }

// Run asks until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		w.ask(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *Watcher) ask(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	_, err := w.client.Version(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.err = err; {
	case err == nil:
		w.silent = time.Time{}
	case w.silent.IsZero():
		w.silent = began
	}
}

// Problem returns for how long ovs-vswitchd has not answered, and why; "" if it answers,
// or did so within the last 5 s. It may be called from any goroutine.
func (w *Watcher) Problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if silent := time.Since(w.silent); !w.silent.IsZero() && silent > tolerated {
		return fmt.Sprintf("ovs-vswitchd has not answered for %s: %v", silent.Round(time.Second), w.err)
	}
	return ""
}
