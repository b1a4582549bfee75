package felixlike

import (
	"context"
	"time"
)

// Stage is one part of the dataplane that the driver programs. Stages are
// applied in order; one that fails keeps the later ones from running when it
// is Required, since what they would do may rely on it.
type Stage struct {
	// Name is the receiver of the writes in status: "ovsdb", "netlink",
	// "nftables", "conntrack" or "openflow".
	Name string
	// Required stages hold the later ones back while they fail: no pod gets
	// its flows while its policy is not in force.
	Required bool
	// Apply programs what is wanted and returns how many mutating messages
	// that took; zero if nothing differed.
	Apply func(ctx context.Context) (writes int, err error)
	// Timeout bounds an Apply, so that a receiver which hangs does not keep the
	// other stages from programming what they can.
	Timeout time.Duration
	// Invalidate forgets what the receiver is known to hold, so that the next
	// Apply looks again. It may be nil.
	Invalidate func()
}

func (s Stage) run(ctx context.Context) (int, error) {
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	return s.Apply(ctx)
}
