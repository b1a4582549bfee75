package traffic

import (
	"context"
	"time"
)

// Start starts traffic. Stop ends it; so does the end of ctx.
func Start(ctx context.Context, o Options) *Traffic {
	if o.Patience == 0 {
		o.Patience = Patience
	}
	if o.Pause == 0 {
		o.Pause = 5 * time.Millisecond
	}
	if o.Explain == nil {
		o.Explain = func(error) string { return "" }
	}
	if o.HalfOpen == nil {
		o.HalfOpen = func(Route, int) bool { return false }
	}
	tr := &Traffic{patience: o.Patience, pause: o.Pause, halfOpen: o.HalfOpen, explain: o.Explain, echoed: map[string]time.Time{}}
	tr.ctx, tr.cancel = context.WithCancel(ctx)
	for _, r := range o.Streams {
		tr.echoed[r.Name] = time.Time{}
	}
	for _, r := range o.Streams {
		tr.loop("stream "+r.Name, func() error { return tr.stream(r) })
	}
	for _, r := range o.Opened {
		tr.loop("new connection "+r.Name, func() error { return tr.open(r) })
	}
	for _, r := range o.Denied {
		tr.loop("denied connection "+r.Name, func() error { return tr.knock(r) })
	}
	return tr
}
