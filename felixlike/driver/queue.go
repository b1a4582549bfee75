package driver

import (
	"context"
	"errors"
	"fmt"
)

// ErrStopped is the error of a wait for the loop once it has ended.
var ErrStopped = errors.New("the agent is stopping")

// queue hands work to the loop, and lets other goroutines wait for its results.
type queue struct {
	calls   chan func()
	stopped chan struct{}
	// waiters belong to the loop.
	waiters []*waiter
}

func newQueue() *queue {
	return &queue{calls: make(chan func(), 256), stopped: make(chan struct{})}
}

// call hands work to the loop.
func (q *queue) call(ctx context.Context, f func()) {
	select {
	case q.calls <- f:
	case <-ctx.Done():
	case <-q.stopped:
	}
}

// ask runs f in the loop and waits for it.
func (q *queue) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	q.call(ctx, func() { f(); close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-q.stopped:
		return ErrStopped
	}
}

// waiter waits until ready reports true or fails.
type waiter struct {
	ready func() (bool, error)
	// err may be read once done is closed.
	err  error
	done chan struct{}
}

// wait waits until ready, which runs in the loop, reports true.
func (q *queue) wait(ctx context.Context, ready func() (bool, error)) error {
	w := &waiter{ready: ready, done: make(chan struct{})}
	q.call(ctx, func() { q.waiters = append(q.waiters, w) })
	select {
	case <-w.done:
	case <-q.stopped:
		return ErrStopped
	case <-ctx.Done():
		q.call(context.WithoutCancel(ctx), func() { q.forget(w) })
		return fmt.Errorf("waiting until programmed: %w", ctx.Err())
	}
	return w.err
}

// wake releases the waiters that are ready.
func (q *queue) wake() {
	waiting := q.waiters[:0]
	for _, w := range q.waiters {
		ready, err := w.ready()
		if w.err = err; ready || err != nil {
			close(w.done)
		} else {
			waiting = append(waiting, w)
		}
	}
	clear(q.waiters[len(waiting):])
	q.waiters = waiting
}

func (q *queue) forget(gone *waiter) {
	for i, w := range q.waiters {
		if w == gone {
			q.waiters = append(q.waiters[:i], q.waiters[i+1:]...)
			return
		}
	}
}
