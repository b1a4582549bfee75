package kubernetes

import (
	"context"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// state holds the known objects of all kinds, and the changes that are not delivered yet. The reflectors
// write, Run takes.
type state struct {
	mu     sync.Mutex
	stores [kinds]*store
	// since is when the oldest change came that was not taken, or zero.
	since time.Time
	// contact holds the failure of the connection, by kind.
	contact contact
	// wake has an element when there is something to take.
	wake chan struct{}
	// taken is closed, and made anew, when the pending changes are taken.
	taken chan struct{}
	// moved is closed, and made anew, when a store receives something.
	moved chan struct{}
}

func newState() *state {
	s := &state{wake: make(chan struct{}, 1), taken: make(chan struct{}), moved: make(chan struct{})}
	for k := range s.stores {
		s.stores[k] = &store{state: s, records: map[key]record{}, uids: map[key]types.UID{}, pending: map[key]*item{}}
	}
	return s
}

// store holds the known objects of a kind; a reflector writes to it.
type store struct {
	state   *state
	records map[key]record
	// uids are those of objects that an Event of this node may be about.
	uids map[key]types.UID
	// pending are the objects that changed; nil for those that are gone.
	pending map[key]*item
	// lists counts the whole lists that have come.
	lists uint64
	// seen is the newest version received; the store has all changes before it.
	seen uint64
	// synced reports that a whole list has come, absent that the API server has no such kind.
	synced, absent bool
}

// record is the stored part of an object. Lists counts the whole lists that came before the object was last
// received: an object with a smaller count than the store's is not in the newest list.
type record struct {
	version uint64
	lists   uint64
	sum     sum
}

// Add, Update, Delete, Replace, Resync and Bookmark implement the store that a reflector writes to.
func (s *store) Add(object any) error { return s.Update(object) }

// backlog bounds the objects of a kind that wait for delivery during the first list.
// Reading stops at the bound until the driver takes objects.
const backlog = 2 * chunk

// ahead delivers an object of the first list before the list is complete, and returns
// the part that the list must keep. This is safe since nothing is programmed before
// the first list is complete. So a large cluster is never in memory at once. Later
// lists are compared as a whole.
func (s *store) ahead(ctx context.Context, i *item) *item {
	for {
		s.state.mu.Lock()
		if s.synced {
			s.state.mu.Unlock()
			return i
		}
		if len(s.pending) < backlog {
			s.setLocked(i)
			s.state.mu.Unlock()
			light := *i
			light.data = nil
			return &light
		}
		taken := s.state.taken
		s.state.mu.Unlock()
		select {
		case <-taken:
		case <-ctx.Done():
			return i
		}
	}
}

// Update takes an object that is new or changed.
func (s *store) Update(object any) error {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	i := object.(*item)
	s.setLocked(i)
	s.sawLocked(i.version)
	return nil
}

// Delete takes an object that is gone.
func (s *store) Delete(object any) error {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	i := object.(*item)
	s.removeLocked(i.key)
	s.sawLocked(i.version)
	return nil
}

// Replace takes a whole list and deletes the objects that it lacks.
func (s *store) Replace(objects []any, version string) error {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.lists++
	for _, object := range objects {
		s.setLocked(object.(*item))
	}
	for k, r := range s.records {
		if r.lists != s.lists {
			s.removeLocked(k)
		}
	}
	// A list may be older than the seen version: the API server was restored.
	s.seen = 0
	s.syncedLocked(false)
	s.sawLocked(version)
	return nil
}

// Resync does nothing.
func (s *store) Resync() error { return nil }

// Bookmark takes the version up to which all changes have come.
func (s *store) Bookmark(version string) error {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.sawLocked(version)
	return nil
}

var (
	_ cache.ReflectorStore         = (*store)(nil)
	_ cache.ReflectorBookmarkStore = (*store)(nil)
)

func (s *store) setLocked(i *item) {
	old, known := s.records[i.key]
	s.records[i.key] = record{version: number(i.version), lists: s.lists, sum: i.sum}
	if i.uid != "" {
		s.uids[i.key] = i.uid
	} else {
		delete(s.uids, i.key)
	}
	if !known || old.sum != i.sum {
		s.pending[i.key] = i
		s.state.changedLocked()
	}
}

func (s *store) removeLocked(k key) {
	if _, known := s.records[k]; known {
		delete(s.records, k)
		delete(s.uids, k)
		s.pending[k] = nil
		s.state.changedLocked()
	}
}

// syncedLocked notes that all objects are known.
func (s *store) syncedLocked(absent bool) {
	if !s.synced || s.absent != absent {
		s.synced, s.absent = true, absent
		s.state.changedLocked()
	}
}

// sawLocked notes how far the reflector has come.
func (s *store) sawLocked(version string) {
	s.seen = max(s.seen, number(version))
	close(s.state.moved)
	s.state.moved = make(chan struct{})
}

// changedLocked wakes Run.
func (s *state) changedLocked() {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	select {
	case s.wake <- struct{}{}:
	default: // it will wake anyway
	}
}

// syncedLocked reports whether all objects of all kinds are known.
func (s *state) syncedLocked() bool {
	for _, store := range s.stores {
		if !store.synced {
			return false
		}
	}
	return true
}

// absent notes that there are no objects of a kind: the API server does not serve it.
func (s *state) absent(k kindName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	store := s.stores[k]
	for key := range store.records {
		store.removeLocked(key)
	}
	store.seen = 0
	store.syncedLocked(true)
	store.sawLocked("")
}

// number returns a resource version as the number that it is; since Kubernetes
// 1.35 they are promised to be.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// chunk is how many objects of the first lists come in one batch: before all is
// in sync, nothing is programmed, and decoded objects are large.
const chunk = 1000
