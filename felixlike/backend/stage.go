package backend

import (
	"context"
	"slices"
	"time"

	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/tables"
)

// Names of the stages between which the backends' stages run.
const (
	// HostStage is the host's side of the gateway port.
	HostStage = "netlink"
	// ForwardingStage programs the flows that lead packets to the enforcement point and
	// then to pods.
	ForwardingStage = "openflow"
	// FlowRestoreStage ends the wait of a restarted switch.
	FlowRestoreStage = "flow-restore"
)

// Stage is one part of the dataplane that the driver programs. Stages are applied in order.
// If a Required stage fails, the later ones do not run, because they may rely on it.
type Stage struct {
	// Name is the receiver of the writes in status: "ovsdb", "netlink",
	// "nftables", "conntrack" or "openflow".
	Name string
	// After names the stage after which a backend's stage runs; empty for the first place.
	After string
	// While a Required stage fails, later stages do not run: no pod gets its flows while its
	// policy is not in force.
	Required bool
	// BestEffort stages are best-effort: their failure is reported and retried, but does not fail
	// the pass.
	BestEffort bool
	// StartupOnly stages run only until a pass with them has succeeded.
	StartupOnly bool
	// Managers set the desired state of this stage only, so their work need not wait for the
	// other stages. Without any, the stage uses the managers of the Config.
	Managers []managers.Manager
	// Apply programs the desired state.
	Apply func(ctx context.Context) (Applied, error)
	// Forwarding is nil for all but the forwarding stage.
	Forwarding managers.Forwarding
	// Timeout bounds an Apply, so that a receiver that hangs does not stop the other stages.
	Timeout time.Duration
	// Invalidate discards the observed state, so that the next Apply reads it again. It may be
	// nil.
	Invalidate func()
	// Watch calls changed, which returns at once, after each foreign change that Apply would
	// repair, until ctx ends. Watch itself must find changes that it may have missed (before
	// it listened, after a lost notification). Such a stage is not invalidated at every
	// resync. It may be applied alone beside other stages that run, so it shares no state
	// with them. Watch may be nil.
	Watch Watch
	// WatchToo is a second Watch, for another part of the receiver. The driver restarts each
	// of them separately when it fails.
	WatchToo Watch
	// WatchIncomplete is set if Watch misses some changes. The stage is then invalidated at every
	// resync.
	WatchIncomplete bool
}

// Incomplete is the error of a stage that has programmed everything that later stages rely on: they run even if it is Required. It is
// reported and retried like that of a BestEffort stage.
type Incomplete struct{ Err error }

// Error implements error.
func (e Incomplete) Error() string { return e.Err.Error() }

// Unwrap implements errors.Unwrap.
func (e Incomplete) Unwrap() error { return e.Err }

// Watch is the type of Stage.Watch.
type Watch = func(ctx context.Context, changed func()) error

// Watches lists Watch and WatchToo, as far as the stage has them.
func (s Stage) Watches() []Watch {
	return slices.DeleteFunc([]Watch{s.Watch, s.WatchToo}, func(w Watch) bool { return w == nil })
}

// Applied is the result of one Apply of a stage.
type Applied struct {
	// Writes counts the mutating messages; zero if nothing differed.
	Writes int
	// Full is set if the whole state of the receiver was read first.
	Full bool
	// Saves and Restores count the programs that were started to read and to
	// write.
	Saves, Restores int
	// Rules and Elements count our rules and elements in the receiver.
	Rules, Elements int
	// Flows counts the stage's flows in the bridge.
	Flows int
	// Settling is the time at the end of the Apply in which the receiver had everything and
	// the stage waited until no cached flow of the old state was in use.
	Settling time.Duration
	// Pending is set if the receiver has everything but does not use it yet: a later stage
	// puts it in force.
	Pending bool
	// Unreadable names the tables that cannot be read in full, with the reason. They are programmed all the same.
	Unreadable []string
	// Refused are all objects that are quarantined now, Repaired the repaired foreign
	// changes.
	Refused  []tables.Refusal
	Repaired []tables.Repair
}

// Writes converts an Apply that only counts its writes to the Apply of a stage.
func Writes(apply func(context.Context) (int, error)) func(context.Context) (Applied, error) {
	return func(ctx context.Context) (Applied, error) {
		n, err := apply(ctx)
		return Applied{Writes: n}, err
	}
}

// Run applies the stage. A panic is a failure of the stage.
func (s Stage) Run(ctx context.Context) (applied Applied, err error) {
	defer panics.Catch(&err)
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	return s.Apply(ctx)
}

// applied converts a table's result.
func applied(r tables.Result) Applied {
	return Applied{
		Writes: r.Messages, Full: r.FullRead, Saves: r.Saves, Restores: r.Restores, Rules: r.Rules, Elements: r.Elements,
		Refused: r.Refused, Repaired: r.Repaired, Unreadable: r.Unreadable,
	}
}

// and adds the result of another driver of the same stage.
func (a Applied) and(r tables.Result) Applied {
	b := applied(r)
	return Applied{
		Writes: a.Writes + b.Writes, Full: a.Full || b.Full, Saves: a.Saves + b.Saves, Restores: a.Restores + b.Restores,
		Rules: a.Rules + b.Rules, Elements: a.Elements + b.Elements,
		Refused: append(a.Refused, b.Refused...), Repaired: append(a.Repaired, b.Repaired...),
		Unreadable: append(a.Unreadable, b.Unreadable...),
	}
}
