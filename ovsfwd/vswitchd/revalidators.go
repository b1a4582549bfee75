package vswitchd

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// waitCommand answers when the revalidators, which visit every cached flow of the
// datapath, have ended a round.
const waitCommand = "revalidator/wait"

// userspace is the type of the datapath that runs in ovs-vswitchd.
const userspace = "netdev"

// rounds is the number of rounds that have to end: the first may have begun before
// the change, the second began after it.
const rounds = 2

// longestRound is twice the time after which a round begins by itself
// (max-revalidator in ovs-vswitchd.conf.db(5)).
const longestRound = time.Second

// Touch makes a small change of flows that no packet meets: it adds one, or
// removes it again.
type Touch func(ctx context.Context, add bool) error

// touchEvery is how long a round may take to begin and end before another change
// is made: more than it takes with an empty cache.
const touchEvery = 20 * time.Millisecond

// WaitRevalidators returns when every cached datapath flow was looked at again, so
// that changes of OpenFlow flows made before are in force for every packet. On the
// userspace datapath no cached flow from before is left: see Purge.
//
// A change starts a round at once; without one the next takes up to half a second to begin. At the call, the
// change's own round may have ended already. So touch, if not nil, is called to start another one.
func (c *Client) WaitRevalidators(ctx context.Context, touch Touch) (err error) {
	w := waiting{touch: touch}
	for _, s := range []**session{&w.waits, &w.asks} {
		if *s, err = c.dial(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, (*s).close()) }()
	}
	if awaits, err := w.asks.awaitsFlows(ctx); err != nil || awaits {
		return cmp.Or(err, ErrAwaitsFlows)
	}
	for range rounds {
		_, err := w.waits.during(ctx, waitCommand, w.round)
		if refused := new(CallError); errors.As(err, &refused) {
			// It does not wait where bridges of both datapath types are.
			if err := errors.Join(w.clear(ctx), pause(ctx, rounds*longestRound)); err != nil {
				return err
			}
			break
		}
		if err != nil {
			return err
		}
	}
	if err := w.clear(ctx); err != nil {
		return err
	}
	return c.Purge(ctx)
}

// purges is the number of purges: the first one skips a flow that a revalidator holds
// at that moment.
const purges = 2

// Purge removes every cached flow of the userspace datapath; the next packets create
// new ones. On the kernel's datapath it does nothing.
//
// To change the actions of a cached flow, the userspace datapath of ovs-vswitchd 3.1
// looks it up by the packet that created it, not by its identifier. If cached flows
// overlap, it may change the other flow instead. The intended flow then counts as
// changed but keeps its old actions: while packets come, it passes denied packets or
// drops allowed ones (TestChangeReachesEveryCachedFlow). Flows overlap if OpenFlow
// flows changed between their creation. Removal by identifier is exact.
func (c *Client) Purge(ctx context.Context) error {
	if c.datapathType != userspace {
		return nil
	}
	for range purges {
		if _, err := c.Call(ctx, "revalidator/purge"); err != nil {
			return err
		}
	}
	return nil
}

// waiting is a wait for revalidators.
type waiting struct {
	waits, asks *session
	touch       Touch
	// touched says that the flow is there.
	touched bool
}

// round returns when a round has ended that had not when it was called.
func (w *waiting) round(ctx context.Context) (string, error) {
	if err := w.waits.ask(waitCommand, []string{}); err != nil {
		return "", err
	}
	if w.touch == nil {
		return w.waits.answer(waitCommand)
	}
	// The daemon reads OpenFlow before commands. Once it has answered another
	// command it has read this one, and counts from there.
	if _, err := w.asks.call(ctx, "version"); err != nil {
		return "", err
	}
	answered := make(chan error, 1)
	go func() {
		_, err := w.waits.answer(waitCommand)
		answered <- err
	}()
	for {
		if err := w.change(ctx); err != nil {
			return "", err
		}
		select {
		case err := <-answered:
			return "", err
		case <-time.After(touchEvery):
		}
	}
}

func (w *waiting) change(ctx context.Context) error {
	w.touched = !w.touched
	return w.touch(ctx, w.touched)
}

// clear leaves no flow behind.
func (w *waiting) clear(ctx context.Context) error {
	if !w.touched {
		return nil
	}
	return w.change(ctx)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
