package felixlike

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/tables"
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
	// Apply programs what is wanted.
	Apply func(ctx context.Context) (Applied, error)
	// Timeout bounds an Apply, so that a receiver which hangs does not keep the
	// other stages from programming what they can.
	Timeout time.Duration
	// Invalidate forgets what the receiver is known to hold, so that the next
	// Apply looks again. It may be nil.
	Invalidate func()
	// Watch calls changed whenever somebody else has changed what the stage
	// programs and Apply would put it right, until ctx ends; such a stage is not
	// invalidated at every resync. It may be nil.
	Watch func(ctx context.Context, changed func()) error
}

// Applied is what one Apply of a stage did.
type Applied struct {
	// Writes counts the mutating messages; zero if nothing differed.
	Writes int
	// Rules and Elements count what the receiver holds of ours; zero if it has
	// none.
	Rules, Elements int
	// Refused are all objects that are set aside now; Repaired the foreign
	// changes that were undone.
	Refused  []tables.Refusal
	Repaired []tables.Repair
}

func (s Stage) run(ctx context.Context) (Applied, error) {
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	return s.Apply(ctx)
}
