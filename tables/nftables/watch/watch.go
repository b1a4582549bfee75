package watch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/felixlike/felixlike/internal/backoff"
)

// How long Watch waits before it subscribes again. The wait doubles while subscriptions
// fail at once. After each failure to subscribe, changed is called, so the driver reads the
// whole table and finds changes even without a subscription.
const (
	resubscribeMin = 10 * time.Millisecond
	resubscribeMax = 10 * time.Second
	// steady is how long a subscription lasts that did not fail at once.
	steady = time.Second
)

// Watch records changes until ctx ends, and returns its error. It calls changed when
// the first change is pending, or changes may have been lost. It runs in the network
// namespace of the descriptor netns (the process's own if zero). buffer bounds the bytes
// that wait in the socket. Only one Watch may run at a time.
func (l *Log) Watch(ctx context.Context, netns, buffer int, changed func()) error {
	wait := time.Duration(0)
	for {
		start := time.Now()
		err := l.listen(ctx, netns, buffer, changed)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		l.end()
		if errors.Is(err, errNoSubscription) {
			changed()
		}
		if wait = backoff.Next(wait, resubscribeMin, resubscribeMax); time.Since(start) > steady {
			wait = 0
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// errNoSubscription says that a subscription could not be had at all.
var errNoSubscription = errors.New("cannot watch nftables")

// listen subscribes and records changes until the subscription fails or ctx ends.
func (l *Log) listen(ctx context.Context, netns, limit int, changed func()) error {
	s, generation, err := Subscribe(netns, limit)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoSubscription, err)
	}
	defer func() {
		l.end()
		_ = s.Close() // nothing is lost with it that is not read in full
	}()
	stop := context.AfterFunc(ctx, s.End)
	defer stop()
	missed, err := l.Begin(s, generation)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoSubscription, err)
	}
	if missed {
		changed()
	}
	buffer := make([]byte, DatagramSize)
	for {
		size, err := s.Receive(buffer)
		if err != nil {
			return fmt.Errorf("read notifications: %w", err)
		}
		if l.Record(buffer[:size], time.Now()) {
			changed()
			// A large change comes as thousands of datagrams. Give way, so that the receiver
			// of changed can begin before all of them are read, also on one processor.
			runtime.Gosched()
		}
	}
}
