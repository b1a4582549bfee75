package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// Offload decides whether the bridge switches packets of established connections. With the setting auto it does not
// while another program has rules that would then miss such packets: a rule that drops, changes or logs packets of pods
// has to work as its author sees it work on other traffic.
type Offload struct {
	setting string
	// find returns the chains of other programs; again makes it read all of them.
	find func(ctx context.Context, again bool) ([]string, error)
	log  *slog.Logger
	// why says why the bridge does not switch them, under any backend; empty if it does, or if the setting says so.
	why atomic.Pointer[string]
	// fixed says that the reason does not change. failures counts the last looks that failed, and seen is when chains
	// were last found. Only one goroutine at a time uses these.
	fixed    bool
	failures int
	seen     time.Time
	offloadTiming
}

// offloadTiming are the intervals of offload.
type offloadTiming struct {
	// every is the time between two looks, whole that between two which read all rules.
	every, whole time.Duration
	// quiet is how long nothing must be found before packets skip the host again: a program may replace its rules one by
	// one.
	quiet time.Duration
}

func defaultOffloadTiming() offloadTiming {
	return offloadTiming{every: 5 * time.Second, whole: 90 * time.Second, quiet: 30 * time.Second}
}

// maxFailures is the number of failed looks after which packets take the way through the host.
const maxFailures = 3

// NewOffload returns the decision for a setting on a datapath.
func NewOffload(setting, datapath string, find func(ctx context.Context, again bool) ([]string, error), log *slog.Logger) *Offload {
	o := &Offload{setting: setting, find: find, log: log, offloadTiming: defaultOffloadTiming()}
	switch {
	case setting == config.OffloadOff:
		o.fixed = true
	case datapath != ovsdb.DatapathSystem:
		o.fixed = true
		o.deny("datapath " + datapath + " does not share connection tracking with the host")
	default:
		o.fixed = setting == config.OffloadOn
	}
	return o
}

// Active reports whether the bridge is to switch packets of established connections.
func (o *Offload) Active() bool { return o.setting != config.OffloadOff && o.why.Load() == nil }

// reason says why not; it is empty with the setting off.
func (o *Offload) reason() string {
	if why := o.why.Load(); why != nil {
		return *why
	}
	return ""
}

func (o *Offload) deny(why string) { o.why.Store(&why) }

// Begin looks for the first time. It never fails: without an answer, packets take the way through the host.
func (o *Offload) Begin(ctx context.Context) {
	o.failures = maxFailures
	o.look(ctx, true)
}

// look decides anew.
func (o *Offload) look(ctx context.Context, again bool) {
	if o.fixed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	found, err := o.find(ctx, again)
	before, now := o.why.Load(), ""
	switch {
	case err != nil:
		if o.failures++; o.failures < maxFailures {
			return
		}
		now = fmt.Sprintf("whether rules of other programs have to see all packets of pods is not known: %v", err)
	case len(found) > 0:
		o.failures, o.seen = 0, time.Now()
		now = bypassedText(found)
	case !o.seen.IsZero() && time.Since(o.seen) < o.quiet:
		return
	default:
		o.failures, o.seen = 0, time.Time{}
	}
	if now == "" {
		o.why.Store(nil)
	} else {
		o.deny(now)
	}
	switch {
	case now != "" && (before == nil || *before != now):
		o.log.Info("packets of established connections take the way through the host", "why", now)
	case now == "" && before != nil:
		o.log.Info("the bridge switches packets of established connections")
	}
}

// shownChains bounds the chains in a text.
const shownChains = 3

// bypassedText names the chains.
func bypassedText(found []string) string {
	found = slices.Clone(found)
	if more := len(found) - shownChains; more > 0 {
		found = append(found[:shownChains], fmt.Sprintf("%d more", more))
	}
	return "rules of other programs have to see all packets of pods: " + strings.Join(found, "; ")
}

// Run looks again and again until ctx ends, and reports each change.
func (o *Offload) Run(ctx context.Context, update func(model.OffloadUpdate)) error {
	if o.fixed {
		<-ctx.Done()
		return ctx.Err()
	}
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		before, whole := o.Active(), time.Since(last) >= o.whole
		if whole {
			last = time.Now()
		}
		o.look(ctx, whole)
		if now := o.Active(); now != before {
			update(model.OffloadUpdate{Active: now})
		}
	}
}

// Status returns the state of the setting offload, by the programmed forwarding flows.
func (o *Offload) Status(m *Migration) control.Offload {
	s := control.Offload{Setting: o.setting}
	switch leads := m.leads.Load(); {
	case s.Setting == config.OffloadOff:
	case leads != nil && *leads != pipeline.Steer:
		s.Why = "backend openflow judges packets in the bridge"
	case !o.Active():
		s.Why = o.reason()
	case leads == nil:
		s.Why = "the forwarding flows are not programmed"
	default:
		s.Active = true
	}
	return s
}
