package backend

import (
	"context"
	"slices"
	"time"

	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/tables"
)

// Names of the stages that backends have their places between.
const (
	// HostStage is the host's side of the gateway port.
	HostStage = "netlink"
	// ForwardingStage has the flows that lead packets to pods, and before that to
	// where they are judged.
	ForwardingStage = "openflow"
)

// Stage is one part of the dataplane that the driver programs. Stages are
// applied in order; one that fails keeps the later ones from running when it
// is Required, since what they would do may rely on it.
type Stage struct {
	// Name is the receiver of the writes in status: "ovsdb", "netlink",
	// "nftables", "conntrack" or "openflow".
	Name string
	// After names the stage behind which a backend's stage has its place; empty
	// for the first place.
	After string
	// Required stages hold the later ones back while they fail: no pod gets
	// its flows while its policy is not in force.
	Required bool
	// Aside stages are none of what is asked for when something has to be
	// programmed: that they fail is told, and they are tried again.
	Aside bool
	// Once stages leave the passes when one has succeeded.
	Once bool
	// Managers are those that set what this stage alone programs. What they have
	// to do for it does not wait until the other stages are done. Without any,
	// the stage has those of the Config.
	Managers []managers.Manager
	// Apply programs what is wanted.
	Apply func(ctx context.Context) (Applied, error)
	// Timeout bounds an Apply, so that a receiver which hangs does not keep the
	// other stages from programming what they can.
	Timeout time.Duration
	// Invalidate forgets what the receiver is known to hold, so that the next
	// Apply looks again. It may be nil.
	Invalidate func()
	// Watch calls changed, which returns at once, whenever somebody else has
	// changed what the stage programs and Apply would put it right, until ctx
	// ends. What it may have missed (before it listened, after a lost
	// notification) is its own to find. Such a stage is not invalidated at every
	// resync, and it is applied alone, beside other stages that run: it shares no
	// state with them. It may be nil.
	Watch Watch
	// WatchToo is a second Watch, for another part of the receiver. Each is started again
	// by itself when it fails.
	WatchToo Watch
	// Overlooks tells that Watch does not notice every change, so that the stage is
	// invalidated at every resync all the same.
	Overlooks bool
}

// Watch is the type of Stage.Watch.
type Watch = func(ctx context.Context, changed func()) error

// Watches lists Watch and WatchToo, as far as the stage has them.
func (s Stage) Watches() []Watch {
	return slices.DeleteFunc([]Watch{s.Watch, s.WatchToo}, func(w Watch) bool { return w == nil })
}

// Applied is what one Apply of a stage did.
type Applied struct {
	// Writes counts the mutating messages; zero if nothing differed.
	Writes int
	// Full tells that all that the receiver holds was read first.
	Full bool
	// Saves and Restores count the programs that were started to read and to
	// write.
	Saves, Restores int
	// Rules and Elements count what the receiver holds of ours; zero if it has
	// none.
	Rules, Elements int
	// Flows counts the flows of ours in the bridge that the stage programs.
	Flows int
	// Settling is the end of the Apply, in which the receiver had everything, and
	// the stage waited for what was cached by the state of before.
	Settling time.Duration
	// Pending tells that the receiver has everything but does not use it yet: a later
	// stage puts it in force.
	Pending bool
	// Refused are all objects that are set aside now; Repaired the foreign
	// changes that were undone.
	Refused  []tables.Refusal
	Repaired []tables.Repair
}

// Run applies the stage. A panic is its failure, like any other.
func (s Stage) Run(ctx context.Context) (applied Applied, err error) {
	defer panics.Catch(&err)
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	return s.Apply(ctx)
}

// applied is what a stage tells of a table's result.
func applied(r tables.Result) Applied {
	return Applied{
		Writes: r.Messages, Full: r.FullRead, Saves: r.Saves, Restores: r.Restores, Rules: r.Rules, Elements: r.Elements,
		Refused: r.Refused, Repaired: r.Repaired,
	}
}

// and adds what another driver of the same stage did.
func (a Applied) and(r tables.Result) Applied {
	b := applied(r)
	return Applied{
		Writes: a.Writes + b.Writes, Full: a.Full || b.Full, Saves: a.Saves + b.Saves, Restores: a.Restores + b.Restores,
		Rules: a.Rules + b.Rules, Elements: a.Elements + b.Elements,
		Refused: append(a.Refused, b.Refused...), Repaired: append(a.Repaired, b.Repaired...),
	}
}
