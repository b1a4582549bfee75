package ctl

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
)

// TestStatusWaits: --wait asks again while no agent listens or the node is degraded, and ends
// with the last answer. Without it, the first answer counts.
func TestStatusWaits(t *testing.T) {
	away := errors.New("away")
	for _, c := range []struct {
		wait    time.Duration
		answers []any
		asked   int
		ready   bool
		err     error
	}{
		{0, []any{away, true}, 1, false, away},
		{0, []any{false, true}, 1, false, nil},
		{time.Minute, []any{away, false, true, false}, 3, true, nil},
		{waitEvery / 2, []any{false, false, true}, 2, false, nil},
		{waitEvery / 2, []any{false, away, true}, 2, false, away},
	} {
		asked := 0
		s, err := waited(t.Context(), func(context.Context) (control.Status, error) {
			answer := c.answers[asked]
			asked++
			if err, is := answer.(error); is {
				return control.Status{}, err
			}
			return control.Status{InSync: answer.(bool)}, nil
		}, report.Ready, c.wait)
		if asked != c.asked || err == nil && report.Ready(s) != c.ready || !errors.Is(err, c.err) {
			t.Errorf("%v for %s: asked %d times, ready %v, error %v", c.answers, c.wait, asked, report.Ready(s), err)
		}
	}
}
