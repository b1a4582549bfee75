package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/test/lab/traffic"
	"github.com/felixlike/felixlike/test/measure"
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

// residue is the time after the repair from which on nothing that got in during the window may live, on any machine.
const residue = 5 * time.Second

// judge checks the invariants of an event.
func (c *cluster) judge(e *event) result {
	r := result{
		Fault: e.name, Backend: c.backend, Window: e.window[c.backend].Seconds(), Bound: e.gap.Seconds(),
		Date: time.Now().UTC().Format(time.DateOnly), Load: measure.LoadAverage(),
	}
	if e.fault != nil {
		r.fail("%v", e.fault)
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
	j := judgement{c, e, &r}
	j.denied()
	j.allowed()
	j.reports()
	if !r.NotCounted {
		j.repairs()
	}
	r.excuse(e.row)
	return r
}

// fail adds a broken invariant.
func (r *result) fail(format string, args ...any) {
	r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
}

// judgement checks the invariants one by one.
type judgement struct {
	c *cluster
	e *event
	r *result
}

// excuse marks a result as known if a row is known to fail, and only as it does.
func (r *result) excuse(of row) {
	unexpected := func(fault string) bool { return !strings.HasPrefix(fault, of.expect) }
	if !r.NotCounted && !slices.ContainsFunc(r.Faults, unexpected) {
		r.Known = of.known[r.Backend]
	}
}

// denied: no packet that policy denies arrives outside of the window.
func (j judgement) denied() {
	leaks, err := j.c.leaks(j.e.began)
	if err != nil {
		j.r.fail("not counted: %v", err)
	}
	window := j.e.window[j.c.backend]
	var outside []traffic.Arrival
	for _, l := range leaks {
		after := l.At.Sub(j.e.done)
		j.r.LastLeak = max(j.r.LastLeak, after.Seconds())
		if window > 0 && !l.At.After(j.e.healed.Add(residue)) && after <= stretch*window && (after <= window || j.c.machine.net(j.e.done, l.At) <= window) {
			j.r.Leaks++
			continue
		}
		outside = append(outside, l)
	}
	if j.r.Outside = len(outside); j.r.Outside > 0 {
		j.r.fail(outsideFault+" of %s: %d, the first %s after the fault (%s), the last %s after it (%s)", window, len(outside),
			outside[0].At.Sub(j.e.done), outside[0], outside[len(outside)-1].At.Sub(j.e.done), outside[len(outside)-1])
		for _, l := range outside[:min(len(outside), 20)] {
			j.c.t.Logf("outside of the window: %s", l)
		}
	}
	if !j.r.NotCounted {
		for i, d := range j.c.denied {
			if j.e.after.tried[i] == j.e.before.tried[i] {
				j.r.fail("not counted: no attempt of %s", d.name)
			}
		}
	}
}

// allowed: allowed traffic is missing for no longer than the bound, and streams go on.
func (j judgement) allowed() {
	for _, a := range j.c.allowed {
		if err := a.stream.Err(); err != nil {
			j.r.fail("%v", err)
		}
		for _, m := range a.meters() {
			gap := m.Longest(j.e.began, j.e.over)
			net := j.c.machine.net(gap.From, gap.To)
			bound, worst := j.e.gap, &j.r.Packets
			switch m.name {
			case "new connections":
				worst = &j.r.Opened
			case "stream":
				// TCP waits up to twice as long as an outage took before it sends again.
				bound, worst = 2*j.e.gap+time.Second, &j.r.Stream
			}
			*worst = max(*worst, gap.Length().Seconds())
			if net > bound {
				j.r.fail("%s %s: nothing passed for %s, of these %s with a processor; the bound is %s", m.name, a.route.Name, gap.Length(), net, bound)
			}
			// TCP's waits are not an outage.
			if m.name != "stream" && net > silentFor && !slices.ContainsFunc(j.c.watcher.between(gap.From, gap.To), func(l look) bool { return !l.well() }) {
				j.r.fail("%s %s: down for %s, of these %s with a processor, and the agents were ready without a problem all the time", m.name, a.route.Name, gap.Length(), net)
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

// reports: no valid policy is quarantined. It notes what the agents said.
func (j judgement) reports() {
	looks := j.c.watcher.between(j.e.began, j.e.over)
	j.r.Said = said(looks)
	if j.e.says && len(j.r.Said) == 0 {
		j.r.fail(silentFault)
	}
	j.r.Said = append(repairsOf(j.e), j.r.Said...)
	reported := map[string]bool{}
	for _, l := range looks {
		for _, q := range l.quarantined {
			if !reported[q] {
				reported[q] = true
				j.r.fail("%s quarantined an object of valid policies: %s", l.node, q)
			}
		}
	}
}

// repairs: a repair is in the status, in the log and in the metric.
func (j judgement) repairs() {
	status, log, metric := j.e.after.status-j.e.before.status, j.e.after.log-j.e.before.log, j.e.after.metric-j.e.before.metric
	if j.e.repairs[j.c.backend] && (status <= 0 || log <= 0 || metric <= 0) {
		j.r.fail("repairs: %d in the status, %d in the log, %.0f in the metric", status, log, metric)
	}
}
