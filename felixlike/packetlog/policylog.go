package packetlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Log writes a line for each packet that a rule with Log decides. While there is such a
// rule, it listens to the dataplane, and the dataplane reports.
type Log struct {
	view *driver.View
	to   io.Writer
	// lines wait for the writer. A log that nobody reads delays nothing else.
	lines chan control.Logged
	// unwritten counts the packets whose lines were not written. A later line has the number.
	unwritten atomic.Uint64

	stream stream[control.Logged]

	mu sync.Mutex
	// failure is why nothing is logged although rules have Log.
	failure error
}

const (
	// gatherLog is how long a report waits for others, so that they get names together.
	gatherLog = 200 * time.Millisecond
	// logCheckEvery is the time between two looks at whether there are rules with Log.
	logCheckEvery = time.Second
	// logRetry is the wait after the first failure.
	logRetry = 30 * time.Second
	// logViewFor is how long a view of the cluster's addresses is used at least: a new one takes
	// the longer, the more pods the cluster has.
	logViewFor = 5 * time.Second
	// logTimeout bounds the wait until the dataplane reports, or ceases to.
	logTimeout = time.Minute
)

// NewLog returns the log of rules with Log. w gets its lines; it may be nil.
func NewLog(v *driver.View, w io.Writer) *Log {
	return &Log{view: v, to: w, lines: make(chan control.Logged, maxWaiting), stream: stream[control.Logged]{
		count:  func(l control.Logged) uint64 { return l.NotLogged },
		missed: func(packets uint64) control.Logged { return control.Logged{At: time.Now(), NotLogged: packets} },
	}}
}

// Module returns the module of the log.
func (l *Log) Module() driver.Module {
	return driver.Module{Run: func(ctx context.Context) error {
		if l.to != nil {
			// Not waited for: a reader of the log that has stopped must not keep the agent.
			go l.write(ctx, l.to)
		}
		return l.run(ctx)
	}}
}

// write writes the lines to w until ctx ends.
func (l *Log) write(ctx context.Context, w io.Writer) {
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-l.lines:
			text, err := json.Marshal(logLine{"policy-log", line})
			if err == nil {
				_, err = w.Write(append(text, '\n'))
			}
			if err != nil {
				l.unwritten.Add(max(1, line.NotLogged))
			}
		}
	}
}

// run logs while rules have Log, until ctx ends. At the end it does not turn the reports off: the
// dataplane keeps what is programmed.
func (l *Log) run(ctx context.Context) error {
	var retries logRetries
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
		if retries.of(b.Name()) {
			l.fail(nil)
		}
		began := time.Now()
		if !retries.Due(began) {
			continue
		}
		err := l.serve(ctx, b)
		if err != nil && ctx.Err() == nil && retries.failed(began, time.Now(), err) {
			l.view.Log().Warn("rules with logging do not log", "component", "policy-log", "backend", b.Name(), "error", err, "retry", retries.Next)
		}
		l.fail(err)
	}
}

func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

// wanted returns the backend in force if rules have Log, and nil during a handover.
func (l *Log) wanted(ctx context.Context) backend.Backend {
	var b backend.Backend
	_ = l.view.Do(ctx, func() { // fails only when the agent ends
		enforcing, err := l.view.Enforcing()
		if err != nil {
			return
		}
		for _, p := range l.view.Model().AllPolicies() {
			if p.Logs() {
				b = enforcing
				return
			}
		}
	})
	return b
}

// serve logs until no rule has Log, or another backend is in force.
func (l *Log) serve(ctx context.Context, b backend.Backend) (err error) {
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
	refused := &logRefusals{}
	if refused.before, err = l.quarantined(ctx); err != nil {
		return err
	}
	if err := errors.Join(l.setReported(ctx, true), l.refused(ctx, b, refused)); err != nil {
		return errors.Join(err, l.setReported(ctx, false))
	}
	l.fail(nil)
	if err := l.take(ctx, s, b, refused, ended); err != nil || ctx.Err() != nil {
		return errors.Join(err, l.setReported(ctx, false))
	}
	if l.wanted(ctx) == nil {
		return l.setReported(ctx, false)
	}
	return nil // the next session is with another backend
}

// setReported switches the reports of the dataplane, and waits until that is programmed.
func (l *Log) setReported(ctx context.Context, on bool) error {
	if ctx.Err() != nil {
		return nil // the agent ends
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	err := program(ctx, l.view, func() {
		if l.view.Model().Logs.Reported != on {
			l.view.Update(model.LogsUpdate{Reported: on})
		}
	})
	if err != nil {
		return fmt.Errorf("switch the reports of rules with logging: %w", err)
	}
	return nil
}

// quarantined returns the quarantined objects of policies that have rules with Log.
func (l *Log) quarantined(ctx context.Context) (all []tables.Refusal, err error) {
	return all, l.view.Do(ctx, func() {
		for _, r := range l.view.Refused() {
			if of, ok := r.Origin.(tables.OfPolicy); ok {
				if p := l.view.Model().Policies[of.ID]; p != nil && p.Logs() {
					all = append(all, r)
				}
			}
		}
	})
}

// refused returns the reason if the dataplane may have refused a policy because its rules report.
// Logging must not change a verdict, and the pods of such a policy are closed.
func (l *Log) refused(ctx context.Context, b backend.Backend, before *logRefusals) error {
	now, err := l.quarantined(ctx)
	if err != nil {
		return err
	}
	if r := before.more(now); r != nil {
		err = fmt.Errorf("%s %s of a policy with logging is refused: %s", r.Object, r.Name, r.Reason)
	}
	return errors.Join(err, b.Logs().Refused())
}

// take logs reports until no rule has Log, another backend is in force, or no more come.
func (l *Log) take(ctx context.Context, s *session, b backend.Backend, refused *logRefusals, ended <-chan struct{}) error {
	names, limits := &logNames{}, newLogLimits()
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
			all, _ = s.gather(ctx, r, gatherLog, nil)
		case <-tick.C:
			if now := l.wanted(ctx); now == nil || now.Name() != b.Name() {
				return nil
			}
			if err := l.refused(ctx, b, refused); err != nil {
				return err
			}
		}
		lines, err := l.named(ctx, names, limits, all)
		if err != nil {
			return nil // the agent ends
		}
		if n := limits.takeOver() + s.takeLost(); n > 0 {
			lines = append(lines, control.Logged{At: time.Now(), NotLogged: n})
		}
		l.send(lines)
	}
}

// logNames has the names for reports. revision is the model's revision when the rules were read.
// The addresses are as they were when viewed.
type logNames struct {
	view           *denied.View
	revision       uint64
	viewed         time.Time
	viewedRevision uint64
}

// outdated reports whether it is time for new addresses.
func (n *logNames) outdated(now time.Time, revision uint64) bool {
	return n.view == nil || n.viewedRevision != revision && now.Sub(n.viewed) >= logViewFor
}

// named adds pods and rules to the reports, as far as the limits let them through.
func (l *Log) named(ctx context.Context, names *logNames, limits *logLimits, all []denied.Report) ([]control.Logged, error) {
	if len(all) == 0 {
		return nil, nil
	}
	var policies map[model.PolicyID]*model.Policy
	err := l.view.Do(ctx, func() {
		t := l.view.Model()
		if names.view == nil || names.revision != l.view.Attempted() {
			policies, names.revision = t.AllPolicies(), l.view.Attempted()
		}
		if now := time.Now(); names.outdated(now, l.view.Attempted()) {
			view := denied.NewView(l.view.Policy().PodAddresses(), t.Attachments, t.Nodes, l.view.Node(), t.Host.Addresses)
			if names.view != nil {
				view.Logs = names.view.Logs
			}
			names.view, names.viewed, names.viewedRevision = view, now, l.view.Attempted()
		}
	})
	if err != nil {
		return nil, err
	}
	if policies != nil {
		names.view.Logs = denied.LogRules(policies)
		limits.keep(names.view.Logs)
	}
	var lines []control.Logged
	for _, r := range all {
		if !limits.allow(r, names.view.Logs[r.Log].Policy) {
			continue
		}
		line, err := names.view.Logged(r)
		if err != nil {
			limits.over++
			l.view.Log().Debug("a packet of a rule with logging has no line", "error", err)
			continue
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// send gives lines to the writer and to the followers.
func (l *Log) send(all []control.Logged) {
	written := all
	if n := l.unwritten.Swap(0); n > 0 {
		written = append([]control.Logged{{At: time.Now(), NotLogged: n}}, all...)
	}
	for _, line := range written {
		select {
		case l.lines <- line:
		default:
			l.unwritten.Add(max(1, line.NotLogged))
		}
	}
	l.stream.send(all)
}

// logLine is a line of the agent's standard output. The component distinguishes it from other lines.
type logLine struct {
	Component string `json:"component"`
	control.Logged
}

// PolicyLog implements control.Agent. It calls got with each line, and with nil at least once per alive, until ctx ends.
func (l *Log) PolicyLog(ctx context.Context, alive time.Duration, got func(*control.Logged) error) error {
	f := newFollower[control.Logged](maxWaiting)
	l.stream.add(f)
	defer l.stream.remove(f)
	l.mu.Lock()
	failure := l.failure
	l.mu.Unlock()
	if failure != nil {
		return failure
	}
	return l.stream.follow(ctx, l.view, f, alive, got)
}
