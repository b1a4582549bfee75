package kubernetes

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// watcher is a watch whose events are trimmed. apimachinery's watch.Filter would
// leave a goroutine behind that waits for ever to send to somebody who has left.
type watcher struct {
	watch.Interface
	events chan watch.Event
	left   chan struct{}
	leave  sync.Once
}

func newWatcher(w watch.Interface, trim func(watch.Event) watch.Event) *watcher {
	t := &watcher{Interface: w, events: make(chan watch.Event), left: make(chan struct{})}
	go func() {
		defer close(t.events)
		for e := range w.ResultChan() {
			select {
			case t.events <- trim(e):
			case <-t.left:
				return
			}
		}
	}()
	return t
}

// ResultChan returns the channel of the trimmed events.
func (t *watcher) ResultChan() <-chan watch.Event { return t.events }

// Stop ends the watch.
func (t *watcher) Stop() {
	t.leave.Do(func() { close(t.left) })
	t.Interface.Stop()
}
