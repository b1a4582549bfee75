package kubernetes

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// watcher is a watch that trims its events. apimachinery's watch.Filter would leave a goroutine that waits for
// ever to send to a reader that has stopped.
type watcher struct {
	watch.Interface
	events chan watch.Event
	left   chan struct{}
	leave  sync.Once
}

// newWatcher returns a watch that begins at a version, or, if initial is true, with all
// objects. Cut reports whether this agent itself ended the connection.
func newWatcher(w watch.Interface, trim func(watch.Event) watch.Event, version string, initial bool, cut func() bool) *watcher {
	t := &watcher{Interface: w, events: make(chan watch.Event), left: make(chan struct{})}
	go func() {
		defer close(t.events)
		for e := range w.ResultChan() {
			if e.Type == watch.Error && cut() {
				break
			}
			e = trim(e)
			if i, is := e.Object.(*item); is {
				version, initial = i.version, initial && !i.initialEnd
			}
			if !t.send(e) {
				return
			}
		}
		// A reflector reads everything again after a watch that ends within a second
		// without events. So this watch sends a bookmark with its last version.
		if cut() && !initial && version != "" {
			t.send(watch.Event{Type: watch.Bookmark, Object: &item{version: version}})
		}
	}()
	return t
}

// send reports whether the reader has taken the event.
func (t *watcher) send(e watch.Event) bool {
	select {
	case t.events <- e:
		return true
	case <-t.left:
		return false
	}
}

// ResultChan returns the channel of the trimmed events.
func (t *watcher) ResultChan() <-chan watch.Event { return t.events }

// Stop ends the watch.
func (t *watcher) Stop() {
	t.leave.Do(func() { close(t.left) })
	t.Interface.Stop()
}
