package ovsdaemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/felixlike/felixlike/internal/backoff"
)

const (
	// atOnce is how many times in a row a daemon is started again without a pause.
	// restartMin is the first pause; the pause doubles while the daemon keeps ending within
	// steadyAfter. restartMax is the longest pause of a daemon that served before it ended,
	// failedMax that of a daemon that does not serve.
	atOnce      = 3
	restartMin  = 100 * time.Millisecond
	restartMax  = time.Second
	failedMax   = 10 * time.Second
	steadyAfter = 10 * time.Second
	// startTimeout bounds one start.
	startTimeout = 15 * time.Second
	// nameAgentAfter is the time that ovs-vswitchd may wait for the agent before the first
	// log entry, and the time between two entries. An agent that starts with it takes
	// seconds.
	nameAgentAfter = 30 * time.Second
)

// Hooks are called by Keep, one at a time.
type Hooks struct {
	// Serving is called whenever ovs-vswitchd serves anew.
	Serving func(context.Context)
	// Away is called again and again while ovs-vswitchd does not run, and when it
	// has ended for good.
	Away func()
	// Ending is called when both daemons are about to be ended.
	Ending func()
}

// Keep runs both daemons until ctx ends, and restarts them when they end before. First it ends daemons that
// an earlier process has left in the run directory, and waits for those that only another pod can end.
func Keep(ctx context.Context, opts Options, hooks Hooks, log *slog.Logger) error {
	d, err := prepare(opts)
	if err != nil {
		return err
	}
	if err := waitForeign(ctx, d.opts.Dir, log); err != nil || ctx.Err() != nil {
		return err
	}
	if err := StopLeftover(d.opts.Dir); err != nil {
		return err
	}
	k := newKeeper(d, hooks, log)
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	err = k.openDB(starting)
	cancel()
	if err == nil {
		k.guard(k.db)
		k.run(ctx)
		hooks.Ending()
	}
	err = errors.Join(err, end(d.vswitchd))
	if d.vswitchd != nil {
		err = errors.Join(err, d.forgetAwaitFlows())
	}
	hooks.Away()
	return errors.Join(err, end(d.db))
}

// keeper keeps both daemons running.
type keeper struct {
	hooks  Hooks
	log    *slog.Logger
	d      *Daemons
	db, vs *kept
	// patience is nameAgentAfter, except in tests. awaits is the start of the wait of
	// ovs-vswitchd, or zero. named is the time of the last log entry about it.
	patience      time.Duration
	awaits, named time.Time
}

func newKeeper(d *Daemons, hooks Hooks, log *slog.Logger) *keeper {
	now := time.Now()
	k := &keeper{
		hooks: hooks, log: log, d: d, patience: nameAgentAfter,
	}
	k.db = &kept{
		name: "ovsdb-server", process: &d.db, started: now, start: k.openDB,
		question: func() (socket, method string) { return d.DBSocket(), "echo" },
	}
	k.vs = &kept{
		name: "ovs-vswitchd", process: &d.vswitchd, away: now, next: now, start: k.startVSwitchd,
		question: func() (socket, method string) { return d.VSwitchdControl(), "version" },
	}
	return k
}

// openDB starts ovsdb-server, on a new database if the old one cannot be read.
func (k *keeper) openDB(ctx context.Context) error {
	err := k.d.openDB(ctx)
	if k.d.unreadable != nil {
		k.log.Error("DATABASE REPLACED: ovsdb-server cannot read it, so the switch begins with an empty one; no packet reaches a pod until the agent "+
			"has made the bridge again and put back the ports", "reason", k.d.unreadable)
	}
	return err
}

// guard starts the watchdog of a daemon that runs.
func (k *keeper) guard(d *kept) {
	socket, method := d.question()
	go watchdog{process: *d.process, socket: socket, method: method, patience: newPatience(d.hangs), log: k.log}.watch()
}

func (k *keeper) startVSwitchd(ctx context.Context) error {
	k.awaits, k.named = time.Time{}, time.Time{}
	if err := k.d.StartVSwitchd(ctx); err != nil {
		return err
	}
	if k.d.awaited {
		k.awaits = time.Now()
		k.log.Info("cached flows stay in force until the agent has programmed ovs-vswitchd")
	}
	k.hooks.Serving(ctx)
	return nil
}

// nameAgent logs at intervals that no agent has programmed ovs-vswitchd, and logs once
// that one has.
func (k *keeper) nameAgent(ctx context.Context) {
	last := k.awaits
	if !k.named.IsZero() {
		last = k.named
	}
	if k.awaits.IsZero() || time.Since(last) < k.patience {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, awayAfter)
	defer cancel()
	awaits, err := k.d.awaitsFlows(ctx)
	since := time.Since(k.awaits).Round(time.Second)
	switch {
	case err != nil: // ovsdb-server may be away: asked again after patience
		k.named = time.Now()
	case awaits:
		k.named = time.Now()
		k.log.Error("NO AGENT has programmed ovs-vswitchd since its start: established connections go on, new ones do not open, "+
			"and no change of policy is in force; check that felixlike-agent runs, and see felixctl status", "since", since)
	case k.named.IsZero():
		k.awaits = time.Time{}
	default:
		k.awaits = time.Time{}
		k.log.Info("the agent has programmed ovs-vswitchd", "after", since)
	}
}

// kept is one daemon that is kept running.
type kept struct {
	name    string
	process **process
	start   func(context.Context) error
	// question returns the socket and the method of its watchdog's question.
	question func() (socket, method string)
	started  time.Time
	// away is since when it does not run, or zero; next when it is started again.
	away, next time.Time
	// failures counts the ends and starts that failed in a row.
	failures int
	// hangs counts the ends by the watchdog in a row.
	hangs int
}

func (k *keeper) run(ctx context.Context) {
	var logged time.Time
	for ctx.Err() == nil {
		wait := min(k.look(ctx, k.db), k.look(ctx, k.vs))
		if away := k.vs.away; !away.IsZero() && time.Since(away) > awayAfter && time.Since(logged) > awayAfter {
			k.hooks.Away()
			logged = time.Now()
		}
		k.nameAgent(ctx)
		select {
		case <-ctx.Done():
		case <-(*k.db.process).running():
		case <-(*k.vs.process).running():
		case <-time.After(wait):
		}
	}
}

// look starts a daemon that does not run, once it is due, and returns how long
// it may be left alone.
func (k *keeper) look(ctx context.Context, d *kept) time.Duration {
	if (*d.process).pid() != 0 {
		return awayAfter
	}
	if d.away.IsZero() {
		d.away = time.Now()
		lived := time.Since(d.started)
		if lived > steadyAfter {
			d.failures = 0
		}
		if lived > soonAfter || !(*d.process).hung.Load() {
			d.hangs = 0
		}
		if (*d.process).hung.Load() {
			d.hangs++
		}
		k.failed(d, "daemon ended; it is started again", (*d.process).exit(), restartMax)
	}
	if pause := time.Until(d.next); pause > 0 {
		return pause
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	d.started = time.Now()
	if err := d.start(ctx); err != nil {
		// A daemon that does not serve counts as ended.
		k.failed(d, "daemon could not be started; it is tried again", errors.Join(err, end(*d.process)), failedMax)
		return time.Until(d.next)
	}
	k.log.Info("daemon runs", "daemon", d.name, "took", time.Since(d.started).Round(time.Millisecond))
	d.away = time.Time{}
	k.guard(d)
	return awayAfter
}

// failed has a daemon wait for up to longest before it is started again.
func (k *keeper) failed(d *kept, what string, err error, longest time.Duration) {
	var pause time.Duration
	if d.failures >= atOnce {
		pause = backoff.After(d.failures-atOnce+1, restartMin, longest)
	}
	d.next = time.Now().Add(pause)
	d.failures++
	k.log.Error(what, "daemon", d.name, "error", err, "pause", pause)
}

// end ends a daemon; that it has ended by itself before is no error now.
func end(p *process) error {
	if p.pid() == 0 {
		return nil
	}
	return p.stop()
}
