package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/measure"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

const (
	// silentFor is how long traffic may be down while the agent says that all is well.
	silentFor = 5 * time.Second
	// stretch bounds a window by the clock, as a multiple of what is declared: on a busy
	// machine the agent may lack a processor, but not for ever.
	stretch = 10
)

// What the faults begin with that some rows are known to have.
const (
	outsideFault = "denied packets outside of the window"
	silentFault  = "the agents were ready without a problem all the time"
)

// judge checks the invariants of an event.
func (c *cluster) judge(e *event) result {
	r := result{
		Fault: e.name, Backend: c.backend, Window: e.window[c.backend].Seconds(), Bound: e.gap.Seconds(),
		Date: time.Now().UTC().Format(time.DateOnly), Load: measure.LoadAverage(),
	}
	fail := func(format string, args ...any) { r.Faults = append(r.Faults, fmt.Sprintf(format, args...)) }
	if e.fault != nil {
		fail("%v", e.fault)
	}
	r.NotCounted = e.began.IsZero() || e.over.IsZero()
	if e.began.IsZero() {
		return r
	}
	if e.over.IsZero() {
		e.over = time.Now()
		e.healed = e.over
	}
	defer func() { c.leaked = r.Leaks+r.Outside > 0 }()
	r.Heal = e.healed.Sub(e.began).Seconds()
	c.judgeDenied(e, &r, fail)
	c.judgeAllowed(e, &r, fail)
	c.judgeWords(e, &r, fail)
	if !r.NotCounted {
		c.judgeRepairs(e, fail)
	}
	r.excuse(e.row)
	return r
}

// excuse marks a result as known if a row is known to fail, and only as it does.
func (r *result) excuse(of row) {
	unexpected := func(fault string) bool { return !strings.HasPrefix(fault, of.expect) }
	if !r.NotCounted && !slices.ContainsFunc(r.Faults, unexpected) {
		r.Known = of.known[r.Backend]
	}
}

// judgeDenied: no packet that policy denies arrives outside of the window.
func (c *cluster) judgeDenied(e *event, r *result, fail func(string, ...any)) {
	leaks, err := c.leaks(e.began)
	if err != nil {
		fail("not counted: %v", err)
	}
	window := e.window[c.backend]
	var outside []traffic.Arrival
	for _, l := range leaks {
		after := l.At.Sub(e.done)
		r.LastLeak = max(r.LastLeak, after.Seconds())
		if window > 0 && after <= stretch*window && (after <= window || c.machine.net(e.done, l.At) <= window) {
			r.Leaks++
			continue
		}
		outside = append(outside, l)
	}
	if r.Outside = len(outside); r.Outside > 0 {
		fail(outsideFault+" of %s: %d, the first %s after the fault (%s), the last %s after it (%s)", window, len(outside),
			outside[0].At.Sub(e.done), outside[0], outside[len(outside)-1].At.Sub(e.done), outside[len(outside)-1])
		for _, l := range outside[:min(len(outside), 20)] {
			c.t.Logf("outside of the window: %s", l)
		}
	}
	if !r.NotCounted {
		for i, d := range c.denied {
			if e.after.tried[i] == e.before.tried[i] {
				fail("not counted: no attempt of %s", d.name)
			}
		}
	}
}

// judgeAllowed: allowed traffic is missing for no longer than the bound, and streams go on.
func (c *cluster) judgeAllowed(e *event, r *result, fail func(string, ...any)) {
	for _, a := range c.allowed {
		if err := a.stream.Err(); err != nil {
			fail("%v", err)
		}
		for _, m := range a.meters() {
			gap := m.Longest(e.began, e.over)
			net := c.machine.net(gap.From, gap.To)
			bound, worst := e.gap, &r.Packets
			switch m.name {
			case "new connections":
				worst = &r.Opened
			case "stream":
				// TCP waits up to twice as long as an outage took before it sends again.
				bound, worst = 2*e.gap+time.Second, &r.Stream
			}
			*worst = max(*worst, gap.Length().Seconds())
			if net > bound {
				fail("%s %s: nothing passed for %s, of these %s with a processor; the bound is %s", m.name, a.route.Name, gap.Length(), net, bound)
			}
			// TCP's waits are not an outage.
			if m.name != "stream" && net > silentFor && !slices.ContainsFunc(c.watcher.between(gap.From, gap.To), func(l look) bool { return !l.well() }) {
				fail("%s %s: down for %s, of these %s with a processor, and the agents were ready without a problem all the time", m.name, a.route.Name, gap.Length(), net)
			}
		}
	}
}

// repairsOf names the first repair of an event, and counts the others.
func repairsOf(e *event) []string {
	i := slices.IndexFunc(e.after.last, func(r control.Repair) bool { return r.At.After(e.began) })
	if i < 0 {
		return nil
	}
	r := e.after.last[i]
	text := fmt.Sprintf("repaired %s %s: %s", r.Kind, r.Name, r.What)
	if more := e.after.status - e.before.status - 1; more > 0 {
		text += fmt.Sprintf("; %d more repairs", more)
	}
	return []string{text}
}

// judgeWords: no valid policy is quarantined. It notes what the agents said.
func (c *cluster) judgeWords(e *event, r *result, fail func(string, ...any)) {
	looks := c.watcher.between(e.began, e.over)
	r.Said = said(looks)
	if e.says && len(r.Said) == 0 {
		fail(silentFault)
	}
	r.Said = append(repairsOf(e), r.Said...)
	told := map[string]bool{}
	for _, l := range looks {
		for _, q := range l.quarantined {
			if !told[q] {
				told[q] = true
				fail("%s quarantined an object of valid policies: %s", l.node, q)
			}
		}
	}
}

// judgeRepairs: a repair is in the status, in the log and in the metric.
func (c *cluster) judgeRepairs(e *event, fail func(string, ...any)) {
	status, log, metric := e.after.status-e.before.status, e.after.log-e.before.log, e.after.metric-e.before.metric
	if e.repairs[c.backend] && (status <= 0 || log <= 0 || metric <= 0) {
		fail("repairs: %d in the status, %d in the log, %.0f in the metric", status, log, metric)
	}
}
