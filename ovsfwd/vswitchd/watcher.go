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
	// silentEvery is the time between two questions while there is no answer.
	silentEvery = 200 * time.Millisecond
	// tolerated is the time without an answer that is no problem yet: ovs-vswitchd answers
	// late while it starts or takes many flows.
	tolerated = 5 * time.Second
)

// Watcher asks ovs-vswitchd for its version at intervals, to notice that it hangs: then
// connections stay open, and no call of the agent fails for many seconds.
type Watcher struct {
	client *Client
	// answers gets a value when ovs-vswitchd answers again after a question without an answer.
	answers chan struct{}

	mu sync.Mutex
	// silent is the time of the first question without an answer, or zero; err is the
	// error of the last one.
	silent time.Time
	err    error
}

// NewWatcher returns a watcher of the daemon with this run directory.
func NewWatcher(rundir string) *Watcher {
	return &Watcher{client: New(rundir, ""), answers: make(chan struct{}, 1)}
}

// Answers delivers a value when ovs-vswitchd answers again after a question without an answer: what failed
// meanwhile can succeed now. Values that nobody has taken are one.
func (w *Watcher) Answers() <-chan struct{} { return w.answers }

// Run asks until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	for {
		next := time.After(watchEvery)
		if !w.ask(ctx) {
			next = time.After(silentEvery)
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ask reports whether there was an answer.
func (w *Watcher) ask(ctx context.Context) bool {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	_, err := w.client.Version(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.err = err; {
	case err == nil && !w.silent.IsZero():
		w.silent = time.Time{}
		select {
		case w.answers <- struct{}{}:
		default:
		}
	case err != nil && w.silent.IsZero():
		w.silent = began
	}
	return err == nil
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
