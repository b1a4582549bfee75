package felixlike

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// policyLog writes a line for each packet that a rule with Log decides. While there is such a
// rule, it listens to the dataplane, and the dataplane reports.
type policyLog struct {
	queue   *queue
	feed    *feed
	stages  *stages
	cluster *cluster
	// lines wait for the writer. A log that nobody reads delays nothing else.
	lines chan []byte
	// lost counts the packets without a line, since the start.
	lost atomic.Uint64

	mu        sync.Mutex
	followers map[*logFollower]struct{}
	// failure is why nothing is logged although rules have Log.
	failure error
}

// logFollower is one client that follows the log.
type logFollower struct {
	lines chan control.Logged
	// missed counts the lines that the follower was too slow for; guarded by policyLog.mu.
	missed uint64
}

const (
	// gatherLog is how long a report waits for others, so that they get names together.
	gatherLog = 200 * time.Millisecond
	// logCheckEvery is the time between two looks at whether there are rules with Log.
	logCheckEvery = time.Second
	// logRetry is the wait after a failure.
	logRetry = 30 * time.Second
	// logTimeout bounds the wait until the dataplane reports, or ceases to.
	logTimeout = time.Minute
)

func newPolicyLog(q *queue, f *feed, s *stages, c *cluster) *policyLog {
	return &policyLog{queue: q, feed: f, stages: s, cluster: c, lines: make(chan []byte, maxWaiting), followers: map[*logFollower]struct{}{}}
}

// write writes the lines to w until ctx ends.
func (l *policyLog) write(ctx context.Context, w io.Writer) {
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-l.lines:
			if _, err := w.Write(line); err != nil {
				l.lost.Add(1)
			}
		}
	}
}

// run logs while rules have Log, until ctx ends. The rules then stay as they are.
func (l *policyLog) run(ctx context.Context) error {
	var retry time.Time
	tick := time.NewTicker(logCheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		b := l.wanted(ctx)
		if b == nil {
			l.fail(nil)
			continue
		}
		if time.Now().Before(retry) {
			continue
		}
		err := l.serve(ctx, b)
		if err != nil && ctx.Err() == nil {
			retry = time.Now().Add(logRetry)
			l.stages.log().Warn("rules with logging do not log", "component", "policy-log", "backend", b.Name(), "error", err, "retry", logRetry)
		}
		l.fail(err)
	}
}

func (l *policyLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

// wanted returns the backend in force if rules have Log, and nil during a handover.
func (l *policyLog) wanted(ctx context.Context) backend.Backend {
	var b backend.Backend
	_ = l.queue.ask(ctx, func() { // fails only when the agent ends
		r := l.stages.decides()
		if l.stages.handover != nil || !l.cluster.inSync() || r == nil || !r.applied {
			return
		}
		for _, p := range l.cluster.tracker.policies {
			if p.Logs() {
				b = l.stages.backend
				return
			}
		}
	})
	return b
}

// serve logs until no rule has Log, or another backend is in force.
func (l *policyLog) serve(ctx context.Context, b backend.Backend) (err error) {
	if err := b.Logs().Check(ctx); err != nil {
		return errors.Join(err, l.setReported(ctx, false))
	}
	listening, cancel := context.WithCancel(ctx)
	s := &session{cancel: cancel, reports: make(chan denied.Report, maxReports)}
	ended, err := b.Logs().Listen(listening, s.put)
	if err != nil {
		cancel()
		return errors.Join(err, l.setReported(ctx, false))
	}
	defer func() {
		cancel()
		<-ended
	}()
	if err := errors.Join(l.setReported(ctx, true), b.Logs().Refused()); err != nil {
		return errors.Join(err, l.setReported(context.WithoutCancel(ctx), false))
	}
	l.fail(nil)
	if err := l.take(ctx, s, b, ended); err != nil || ctx.Err() != nil {
		return err
	}
	if l.wanted(ctx) == nil {
		return l.setReported(ctx, false)
	}
	return nil // the next session is with another backend
}

// setReported switches the reports of the dataplane, and waits until that is programmed.
func (l *policyLog) setReported(ctx context.Context, on bool) error {
	if ctx.Err() != nil {
		return nil // the agent ends
	}
	var noted uint64
	if err := l.queue.ask(ctx, func() {
		if l.cluster.tracker.logs.Reported != on {
			l.feed.update(model.LogsUpdate{Reported: on})
		}
		noted = l.cluster.tracker.noted
	}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	err := l.queue.wait(ctx, func() (bool, error) {
		r := l.stages.decides()
		return r != nil && r.programmed >= noted && !r.running, nil
	})
	if err != nil {
		return fmt.Errorf("switch the reports of rules with logging: %w", err)
	}
	return nil
}

// take logs reports until no rule has Log, another backend is in force, or no more come.
func (l *policyLog) take(ctx context.Context, s *session, b backend.Backend, ended <-chan struct{}) error {
	names, limits := &logNames{}, newLogLimits()
	skipped := &skips{read: b.Logs().Skipped, limit: rules.LogsPerSecond}
	skipped.begin(ctx)
	tick := time.NewTicker(logCheckEvery)
	defer tick.Stop()
	for {
		var all []denied.Report
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			return fmt.Errorf("backend %s does not report any more", b.Name())
		case r := <-s.reports:
			all = s.gather(r, gatherLog)
		case <-tick.C:
			if now := l.wanted(ctx); now == nil || now.Name() != b.Name() {
				return nil
			}
			if err := b.Logs().Refused(); err != nil {
				return err
			}
		}
		quiet := len(all) == 0
		lines, err := l.named(ctx, names, limits, all)
		if err != nil {
			return nil // the agent ends
		}
		skipped.note(len(all))
		if n := limits.takeOver() + s.takeLost() + skipped.more(ctx, quiet); n > 0 {
			l.lost.Add(n)
			lines = append(lines, control.Logged{At: time.Now(), NotLogged: n})
		}
		l.send(lines)
	}
}

// logNames is a view of the model, valid until the model changes.
type logNames struct {
	view  *denied.View
	noted uint64
}

// named adds pods and rules to the reports, as far as the limits let them through.
func (l *policyLog) named(ctx context.Context, names *logNames, limits *logLimits, all []denied.Report) ([]control.Logged, error) {
	var through []denied.Report
	for _, r := range all {
		if limits.allow(r) {
			through = append(through, r)
		}
	}
	if len(through) == 0 {
		return nil, nil
	}
	err := l.queue.ask(ctx, func() {
		t := l.cluster.tracker
		if names.view == nil || names.noted != t.noted {
			names.view = denied.NewView(l.cluster.engine.PodAddresses(), t.attachments, t.nodes, l.cluster.node, t.host.Addresses)
			names.view.Logs, names.noted = denied.LogRules(t.policies), t.noted
			limits.keep(names.view.Logs)
		}
	})
	if err != nil {
		return nil, err
	}
	var lines []control.Logged
	for _, r := range through {
		line, err := names.view.Logged(r)
		if err != nil {
			limits.over++
			l.stages.log().Debug("a packet of a rule with logging has no line", "error", err)
			continue
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// send gives lines to the writer and to the followers.
func (l *policyLog) send(all []control.Logged) {
	for _, line := range all {
		text, err := json.Marshal(logLine{"policy-log", line})
		if err != nil {
			l.lost.Add(1)
			continue
		}
		select {
		case l.lines <- append(text, '\n'):
		default:
			l.lost.Add(1)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for f := range l.followers {
		for _, line := range all {
			select {
			case f.lines <- line:
			default:
				f.missed += max(1, line.NotLogged)
			}
		}
	}
}

// logLine is a line of the agent's standard output. The component tells it from other lines.
type logLine struct {
	Component string `json:"component"`
	control.Logged
}

// follow calls got with each line, and with nil at least once per alive, until ctx ends.
func (l *policyLog) follow(ctx context.Context, alive time.Duration, got func(*control.Logged) error) error {
	f := &logFollower{lines: make(chan control.Logged, maxWaiting)}
	l.mu.Lock()
	failure := l.failure
	l.followers[f] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.followers, f)
	}()
	if failure != nil {
		return failure
	}
	if err := got(nil); err != nil {
		return err
	}
	tick := time.NewTicker(alive)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-l.queue.stopped:
			return errStopped
		case line := <-f.lines:
			err = got(&line)
		case <-tick.C:
			err = got(nil)
		}
		l.mu.Lock()
		missed := f.missed
		f.missed = 0
		l.mu.Unlock()
		if err == nil && missed > 0 {
			err = got(&control.Logged{At: time.Now(), NotLogged: missed})
		}
		if err != nil {
			return err
		}
	}
}

// logLimits bounds the lines of each rule, and of all. The kernel's bound is for each of the
// several kernel rules that a rule may become, the switch's for all rules.
type logLimits struct {
	node  *rate.Limiter
	rules map[rules.LogKey]*rate.Limiter
	// over counts the packets without a line since the last takeOver.
	over uint64
}

func newLogLimits() *logLimits {
	return &logLimits{node: rate.NewLimiter(rules.LogsPerNode, rules.LogsPerNode), rules: map[rules.LogKey]*rate.Limiter{}}
}

func (l *logLimits) allow(r denied.Report) bool {
	of := l.rules[r.Log]
	if of == nil {
		of = rate.NewLimiter(rules.LogsPerSecond, rules.LogsPerSecond)
		l.rules[r.Log] = of
	}
	if of.AllowN(r.At, 1) && l.node.AllowN(r.At, 1) {
		return true
	}
	l.over++
	return false
}

// keep forgets the rules that are gone.
func (l *logLimits) keep(known map[rules.LogKey]denied.LogRule) {
	for key := range l.rules {
		if _, found := known[key]; !found {
			delete(l.rules, key)
		}
	}
}

func (l *logLimits) takeOver() uint64 {
	n := l.over
	l.over = 0
	return n
}
