package revalidate

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/internal/backoff"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/ovsfwd/carry"
)

// Sources know the sources that packets of pods must have, and end flows that go on with another one.
type Sources interface {
	// Now returns the desired sources, nil before the node is known. It is another value after each change.
	Now() *managers.Translations
	// EndTranslations ends the unanswered connections with another source, and returns their number (carry.Carrier).
	EndTranslations(ctx context.Context, t carry.Translations, inSwitch bool, latest func() carry.Translations) (int, error)
}

const (
	// minTranslationRest and maxTranslationRest bound the pause after a look at all connections. A pause is four times as long as the
	// look before: under a storm of changes, looks take a fifth of one processor at most, until a look takes a second.
	minTranslationRest = 100 * time.Millisecond
	maxTranslationRest = 4 * time.Second
)

// Translations ends flows without answers that go on with another source than they must have: NAT binds a connection at its first
// packet, and each packet keeps its entry. It has a goroutine of its own, beside the loop and the stages. It looks after the start,
// after a change of nodes or Egresses, a repair, and a change of the backend, each time when the dataplane has the change.
type Translations struct {
	view   *driver.View
	all    Sources
	timing driver.Timing
	wake   chan struct{}
	// programmed are the sources that the dataplane has. begun are those of the last look.
	programmed, begun atomic.Pointer[managers.Translations]
}

// NewTranslations ends flows with another source than they must have.
func NewTranslations(v *driver.View, all Sources, timing driver.Timing) *Translations {
	return &Translations{view: v, all: all, timing: timing, wake: make(chan struct{}, 1)}
}

// Module returns the module of the translations.
func (t *Translations) Module() driver.Module {
	return driver.Module{
		Run: t.run, OnForeign: t.changed,
		OnCycle: func() func() {
			desired := t.all.Now()
			return func() { t.applied(desired) }
		},
	}
}

// applied takes the sources that the dataplane has. It runs in the loop.
func (t *Translations) applied(now *managers.Translations) {
	if t.programmed.Store(now); now != t.begun.Load() {
		t.changed()
	}
}

// changed asks for a look. It may be called from any goroutine.
func (t *Translations) changed() {
	select {
	case t.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// run looks after changes, until ctx ends.
func (t *Translations) run(ctx context.Context) error {
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
		}
		began := time.Now()
		err := panics.Guard(func() error { return t.look(ctx) })
		rest := min(max(4*time.Since(began), minTranslationRest), maxTranslationRest)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			failures++
			rest = max(rest, backoff.After(failures, t.timing.RetryMin, t.timing.RetryMax))
			t.view.Log().Warn("flows without answers may go on with another source than they must have", "error", err, "retry", rest)
			t.changed()
		default:
			failures = 0
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

// look ends the flows that are wrong now. During a change of the backend it waits: connections are between two enforcement points, and
// the end of the change asks again.
func (t *Translations) look(ctx context.Context) error {
	steady, inSwitch, err := t.place(ctx)
	now := t.programmed.Load()
	if err != nil || now == nil || !steady {
		return err
	}
	t.begun.Store(now)
	ended, err := t.all.EndTranslations(ctx, now, inSwitch, func() carry.Translations {
		// The dataplane may have got other sources since, which ask for a look of their own, or another backend.
		if steady, still, err := t.place(ctx); err != nil || !steady || still != inSwitch {
			t.begun.Store(nil) // the end of that change asks again
			return nil
		}
		return t.all.Now()
	})
	if err != nil {
		t.begun.Store(nil)
	}
	if ended > 0 {
		t.view.Log().Info("flows without answers are ended: their packets must have another source now", "ended", ended)
	}
	return err
}

// place reports whether no change of the backend is under way, and whether the bridge judges.
func (t *Translations) place(ctx context.Context) (steady, inSwitch bool, err error) {
	err = t.view.Do(ctx, func() {
		steady, inSwitch = !t.view.Changing(), t.view.Backend().Place() == backend.InSwitch
	})
	return steady, inSwitch, err
}
