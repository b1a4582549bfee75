package hostnet

import (
	"context"
	"time"
)

// again calls run until the context ends, and failed with the error of each call. The pause
// between two calls grows from relistMin to relistMax, and is relistMin again after a call that lasted longer.
func again(ctx context.Context, run func(context.Context) error, failed func(error)) error {
	wait := relistMin
	for {
		start := time.Now()
		err := run(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failed(err)
		if wait = min(2*wait, relistMax); time.Since(start) > relistMax {
			wait = relistMin
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
