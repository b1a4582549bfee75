package felixlike

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

const (
	// aloneWait is how long a starting agent waits for one that ends, aloneRetry the time
	// between two tries.
	aloneWait  = 5 * time.Second
	aloneRetry = 100 * time.Millisecond
)

// beAlone fails if another agent runs in this network namespace, even with other
// directories: both would program the same names. Until release is called, other agents
// fail here, and the kernel tracks connections even after another program removed all rules
// (conntrack.Hold). A kernel without this feature is no error.
func beAlone(ctx context.Context, log *slog.Logger) (release func(), err error) {
	return untilAlone(ctx, log, func() (io.Closer, error) { return conntrack.HoldTracking(0) })
}

// untilAlone is beAlone with a function that gets the hold.
func untilAlone(ctx context.Context, log *slog.Logger, take func() (io.Closer, error)) (release func(), err error) {
	for end := time.Now().Add(aloneWait); ; {
		hold, err := take()
		late := time.Now().After(end)
		switch {
		case err == nil:
			return func() { _ = hold.Close() }, nil // the kernel removes the table with the socket
		case errors.Is(err, unix.EPERM) && !late:
			// The agent that had the table may just have ended.
		case !errors.Is(err, conntrack.ErrHeld):
			log.Warn("a flush of all rules can end connection tracking: a UDP flow that policy denies at that moment may continue", "component", "conntrack", "error", err)
			return func() {}, nil
		case late:
			return nil, fmt.Errorf("another agent runs on this node: stop it first: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(aloneRetry):
		}
	}
}

// gcPercent is the agent's GOGC. An agent is idle most of the time, so memory matters
// more than CPU. At 100,000 pods Go's default of 100 costs 50 MB more and saves 0.3
// CPU-s of the start.
const gcPercent = 75

// SetGC sets the garbage collector as an agent runs with it, unless GOGC says otherwise.
func SetGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
