package packetlog

import (
	"context"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/driver"
)

// maxWaiting bounds the events that wait for one follower.
const maxWaiting = 1024

// stream hands events about packets to its followers. A follower that is too slow misses some, and gets their number.
type stream[Event any] struct {
	// count returns the number of packets that an event counts without showing them, and missed makes such an event.
	count  func(Event) uint64
	missed func(packets uint64) Event

	mu        sync.Mutex
	followers map[*follower[Event]]struct{}
}

// follower is one client of a stream.
type follower[Event any] struct {
	events chan Event
	// missed counts the packets that the follower was too slow for; guarded by stream.mu.
	missed uint64
	// failed gets the reason when no more events will come.
	failed chan error
	// patient is set if the follower need not have events at once.
	patient bool
}

// newFollower returns a follower for which that many events may wait.
func newFollower[Event any](waiting int) *follower[Event] {
	return &follower[Event]{events: make(chan Event, waiting), failed: make(chan error, 1)}
}

func (s *stream[Event]) add(f *follower[Event]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers == nil {
		s.followers = map[*follower[Event]]struct{}{}
	}
	s.followers[f] = struct{}{}
}

// remove removes a follower, and returns how many are left.
func (s *stream[Event]) remove(f *follower[Event]) (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.followers, f)
	return len(s.followers)
}

// patient reports whether all followers are.
func (s *stream[Event]) patient() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
		if !f.patient {
			return false
		}
	}
	return true
}

// send sends events to all followers.
func (s *stream[Event]) send(all []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
		for _, e := range all {
			select {
			case f.events <- e:
			default:
				f.missed += max(1, s.count(e))
			}
		}
	}
}

// fail ends all followers with an error.
func (s *stream[Event]) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
		select {
		case f.failed <- err:
		default: // it has an error already
		}
	}
}

// takeMissed returns what a follower has missed since the last call.
func (s *stream[Event]) takeMissed(f *follower[Event]) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	missed := f.missed
	f.missed = 0
	return missed
}

// follow calls got with each event, and with nil at least once per alive, until ctx ends.
func (s *stream[Event]) follow(ctx context.Context, v *driver.View, f *follower[Event], alive time.Duration, got func(*Event) error) error {
	if err := got(nil); err != nil {
		return err
	}
	tick := time.NewTicker(alive)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-v.Stopped():
			return driver.ErrStopped
		case err := <-f.failed:
			return err
		case e := <-f.events:
			err = got(&e)
		case <-tick.C:
			err = got(nil)
		}
		if missed := s.takeMissed(f); err == nil && missed > 0 {
			e := s.missed(missed)
			err = got(&e)
		}
		if err != nil {
			return err
		}
	}
}
