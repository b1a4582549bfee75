package manifests

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// QuietTime is how long a directory must be quiet after a change before it is
// scanned: writers seldom write a set of files at once.
const QuietTime = 50 * time.Millisecond

const (
	// maxDelay bounds that wait under changes without end.
	maxDelay = 500 * time.Millisecond
	// absentPoll is the interval between two looks for an absent directory; inotify cannot wait for a path
	// that does not exist.
	absentPoll = 250 * time.Millisecond
)

// Options are the parameters of a Source.
type Options struct {
	// Dir is the directory; it need not exist yet.
	Dir string
	// Rescan is the time between two scans when nothing seems to change; 0
	// stands for ten seconds.
	Rescan time.Duration
	// State is the agent's state directory. The last good versions of the files are kept there; empty: they are not.
	State string
	// Services has Services and EndpointSlices read.
	Services bool
	Log      *slog.Logger
}

// Source watches a directory. It is a datastore.Source.
type Source struct {
	dir      string
	state    string
	services bool
	rescan   time.Duration
	log      *slog.Logger
	syncs    chan syncRequest
	ended    chan struct{}
}

// syncRequest asks for a scan that begins after it was sent.
type syncRequest struct{ answer chan<- syncAnswer }

type syncAnswer struct {
	revision uint64
	err      error
}

// New returns a source that does not watch yet.
func New(o Options) *Source {
	if o.Rescan <= 0 {
		o.Rescan = defaultRescan
	}
	return &Source{
		dir: o.Dir, state: o.State, services: o.Services, rescan: o.Rescan, log: o.Log.With("dir", o.Dir),
		syncs: make(chan syncRequest), ended: make(chan struct{}),
	}
}

// Sync scans the directory now. It fails if there is no directory to scan;
// errors inside files are problems of the batch instead.
func (s *Source) Sync(ctx context.Context) (uint64, error) {
	answer := make(chan syncAnswer, 1)
	select {
	case s.syncs <- syncRequest{answer: answer}:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-s.ended:
		return 0, errEnded
	}
	select {
	case a := <-answer:
		return a.revision, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-s.ended:
		return 0, errEnded
	}
}

var errEnded = errors.New("the manifests source has ended")

// Run delivers the directory's objects until ctx ends.
func (s *Source) Run(ctx context.Context, deliver func(datastore.Batch)) error {
	defer close(s.ended)
	w := newWatch(s.dir, s.log)
	defer w.close()
	kept := newCopies(s.state, s.dir, s.services, s.log)
	r := &run{source: s, watch: w, scanner: newScanner(s.dir, s.services, kept), deliver: deliver}
	defer kept.begin()()
	r.look(false)
	timer := time.NewTimer(r.next())
	defer timer.Stop()
	for {
		timer.Reset(r.next())
		select {
		case <-ctx.Done():
			r.answer(ctx.Err())
			return nil
		case request := <-s.syncs:
			r.pending = append(r.pending, request.answer)
			r.collect()
			r.look(true)
		case changed := <-w.events():
			if w.concerns(changed) {
				r.touched(time.Now())
			}
		case err := <-w.errors():
			s.log.Warn("watching is unreliable, scanning", "error", err)
			r.touched(time.Now())
		case <-kept.notices():
			r.look(len(r.pending) > 0)
		case <-timer.C:
			r.look(len(r.pending) > 0)
		}
	}
}

// run is the state of Run.
type run struct {
	source  *Source
	watch   *watch
	scanner *scanner
	deliver func(datastore.Batch)

	revision  uint64
	problems  []model.Problem
	unknown   []string
	outdated  int
	inSync    bool
	firstSeen time.Time // of the changes not yet scanned
	lastSeen  time.Time
	// noticed is when the oldest change that was not delivered was seen.
	noticed  time.Time
	lastScan time.Time
	result   scan
	pending  []chan<- syncAnswer
}

// touched notes a change that a scan will look at.
func (r *run) touched(now time.Time) {
	if r.firstSeen.IsZero() {
		r.firstSeen = now
	}
	if r.noticed.IsZero() {
		r.noticed = now
	}
	r.lastSeen = now
}

// next returns the time until the next scan.
func (r *run) next() time.Duration {
	at := r.lastScan.Add(r.source.rescan)
	earlier := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	if r.result.waiting {
		earlier(r.lastScan.Add(settleTime))
	}
	if r.result.err != nil {
		earlier(r.lastScan.Add(absentPoll))
	}
	if !r.firstSeen.IsZero() {
		earlier(r.lastSeen.Add(QuietTime))
		earlier(r.firstSeen.Add(maxDelay))
	}
	return max(time.Until(at), 0)
}

// collect takes the calls of Sync that wait already: one scan serves them all.
func (r *run) collect() {
	for {
		select {
		case request := <-r.source.syncs:
			r.pending = append(r.pending, request.answer)
		default:
			return
		}
	}
}

// look scans, delivers the changes and answers the waiting callers.
func (r *run) look(force bool) {
	// Watched before read, so that no change falls in between.
	watchErr := r.watch.ensure()
	if r.noticed.IsZero() {
		r.noticed = time.Now()
	}
	r.firstSeen, r.lastSeen = time.Time{}, time.Time{}
	r.result = r.scanner.scan(force)
	r.lastScan = time.Now()
	if watchErr != nil && r.result.err == nil {
		r.result.problems = append([]model.Problem{{
			Source: r.source.dir, Object: model.ObjectRef{Kind: "directory", Name: r.source.dir},
			Reason: "cannot be watched, changes are noticed late: " + watchErr.Error(),
		}}, r.result.problems...)
	}
	r.publish()
	if !r.result.waiting {
		r.noticed = time.Time{}
	}
	if r.result.err != nil {
		r.answer(r.result.err)
	} else if !r.result.waiting {
		r.answer(nil)
	}
}

// publish delivers a batch if there is anything new.
func (r *run) publish() {
	inSync := r.inSync || r.result.err == nil
	if r.revision > 0 && inSync == r.inSync && len(r.result.events) == 0 && slices.Equal(r.problems, r.result.problems) &&
		r.outdated == r.result.outdated && slices.Equal(r.unknown, r.result.unknown) {
		return
	}
	r.revision++
	r.logProblems()
	r.inSync, r.problems, r.unknown, r.outdated = inSync, r.result.problems, r.result.unknown, r.result.outdated
	r.source.log.Debug("directory changed", "revision", r.revision, "events", len(r.result.events), "problems", len(r.problems))
	r.deliver(datastore.Batch{Revision: r.revision, Seen: r.noticed, Events: r.result.events, Problems: r.problems, InSync: inSync, Unknown: r.unknown, Outdated: r.outdated})
}

// loggedProblems bounds the problems that one scan logs.
const loggedProblems = 20

// logProblems logs the new problems.
func (r *run) logProblems() {
	known := map[model.Problem]bool{}
	for _, p := range r.problems {
		known[p] = true
	}
	logged := 0
	for _, p := range r.result.problems {
		if known[p] {
			continue
		}
		if logged == loggedProblems {
			r.source.log.Warn("there are more problems in manifests", "more", len(r.result.problems)-logged)
			return
		}
		logged++
		r.source.log.Warn("problem in manifests", "source", p.Source, "object", p.Object.String(), "field", p.Field, "reason", p.Reason)
	}
}

func (r *run) answer(err error) {
	for _, answer := range r.pending {
		answer <- syncAnswer{revision: r.revision, err: err}
	}
	r.pending = nil
}
