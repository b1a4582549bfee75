package supervisor

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/vishvananda/netns"
)

const (
	// endingTimeout bounds the work before the daemons end: a pod has half a minute in
	// all.
	endingTimeout = 15 * time.Second
	// awayAtLatest is the time after which the uplink serves the addresses again, even if
	// connections are still to be saved: a pod that is deleted by force is killed two
	// seconds after SIGTERM, and the node would be cut off.
	awayAtLatest = time.Second
)

// ending saves the connections that would be lost with the daemons. It carries most of
// them while packets flow, and those begun meanwhile after packets have stopped.
func (s *supervisor) ending() {
	ctx, cancel := context.WithTimeout(context.Background(), endingTimeout)
	defer cancel()
	saved := s.awayAfter(awayAtLatest)
	s.save(ctx, s.carry, s.silence, s.carryBehind)
	if saved() {
		// The kernel may have made entries for masqueraded connections meanwhile, without the
		// mark.
		s.save(ctx, s.carryBehind)
	}
	s.away()
}

func (s *supervisor) save(ctx context.Context, saves ...func(context.Context) error) {
	for _, save := range saves {
		if err := save(ctx); err != nil {
			s.log.Error("connections may be lost", "error", err)
		}
	}
}

// awayAfter moves the node's addresses back to the uplink after some time, on a separate
// thread. The returned function cancels this, or waits for it if it has begun, and reports
// whether it had begun. Until then, the switch serves pods' connections as before.
func (s *supervisor) awayAfter(limit time.Duration) (saved func() bool) {
	home, err := netns.Get()
	if err != nil {
		s.log.Error("the node's addresses move back to the uplink only after the connections are saved", "error", err)
		return func() bool { return false }
	}
	stop, done := make(chan struct{}), make(chan bool, 1)
	go func() {
		begun := false
		defer func() { done <- begun }()
		defer home.Close()
		select {
		case <-stop:
			return
		case <-time.After(limit):
		}
		// Never unlocked: a thread that was moved ends with the goroutine.
		runtime.LockOSThread()
		if err := enter(home); err != nil {
			s.log.Error("the node's addresses move back to the uplink only after the connections are saved", "error", err)
			return
		}
		begun = true
		s.away()
	}()
	return func() bool { close(stop); return <-done }
}

// enter moves the thread to a network namespace, unless it is there already: moving needs
// rights that the supervisor may not have if there is only one namespace.
func enter(home netns.NsHandle) error {
	now, err := netns.Get()
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer now.Close()
	if now.Equal(home) {
		return nil
	}
	if err := netns.Set(home); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}
