package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// TestChaos runs the rows of the table, the backends one after the other, each in a lab of
// its own.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("a lab takes seconds")
	}
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
	began := time.Now()
	var results []result
	var left []string
	total := 0
	for _, b := range backends() {
		if *backend != "" && b != *backend {
			continue
		}
		some, err := chosen(b)
		if err != nil {
			t.Fatal(err)
		}
		total += len(some)
		over := func() bool { return time.Since(began) > *budget }
		if len(some) == 0 {
			continue
		}
		if over() {
			left = append(left, b+": the time was over")
			continue
		}
		t.Run(b, func(t *testing.T) {
			say("%s: %d faults; a lab is made\n", b, len(some))
			c := newCluster(t, b)
			for _, r := range some {
				if over() {
					left = append(left, b+": "+r.name+": the time was over")
					continue
				}
				if c.broken {
					left = append(left, b+": "+r.name+": a row before has left the cluster unwell")
					continue
				}
				t.Run(strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) {
					got := c.run(t.Context(), r)
					results = append(results, got)
					say("%s\n", got.line())
					t.Log(got.line())
					for _, f := range got.Faults {
						if got.Known != "" {
							t.Logf("known: %s", f)
							continue
						}
						t.Error(f)
					}
				})
			}
		})
	}
	if total == 0 {
		t.Fatalf("no row for the fault %q and the backend %q", *fault, *backend)
	}
	if len(left) > 0 {
		t.Logf("not run: %s", strings.Join(left, "; "))
	}
	if *report != "" {
		if err := writeReport(t.Context(), *report, results); err != nil {
			t.Fatal(err)
		}
	}
	say("%s", summary(results, left))
}

// say prints progress of the whole table. In continuous integration the test's log has it.
func say(format string, args ...any) {
	if *all {
		fmt.Fprintf(os.Stdout, format, args...)
	}
}

const (
	// steadyFor is the time of traffic before a fault, jitter the longest wait after it.
	steadyFor = time.Second
	jitter    = 500 * time.Millisecond
	// healFor bounds the wait until all is well again.
	healFor = wait
	// settleFor is the time after the repair in which no denied packet may arrive: answers
	// of slow servers come in it.
	settleFor = 6 * time.Second
)

// event is a fault as it happened.
type event struct {
	row
	// began and done are the times before and after the action, ended that after its undoing.
	// healed is when all was well again, over the end of the watch.
	began, done, ended, healed, over time.Time
	// counts before and after.
	before, after counts
	// fault is why the row does not count, if it does not.
	fault error
}

// run runs one row and judges it.
func (c *cluster) run(ctx context.Context, r row) result {
	if c.leaked {
		c.startDenied()
	}
	e := event{row: r}
	e.fault = c.happen(ctx, &e)
	return c.judge(&e)
}

// happen has the fault happen.
func (c *cluster) happen(ctx context.Context, e *event) error {
	if err := c.revive(); err != nil {
		return err
	}
	begin := time.Now()
	c.forget(begin.Add(-time.Minute))
	if !within(ctx, wait, func() bool {
		return time.Since(begin) > steadyFor && c.passesSince(begin) && c.watcher.wellSince(begin)
	}) {
		c.broken = true
		return fmt.Errorf("not counted: before the fault %s", c.ailing(begin))
	}
	pause(ctx, time.Duration(c.random.Int64N(int64(jitter))))
	var err error
	if e.before, err = c.count(ctx); err != nil {
		return fmt.Errorf("not counted: %w", err)
	}
	e.began = time.Now()
	err = e.do(ctx, c)
	e.done = time.Now()
	if err == nil {
		pause(ctx, e.hold)
	}
	if e.undo != nil {
		if failed := e.undo(ctx, c); failed != nil {
			c.broken = true
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return fmt.Errorf("not counted: %w", err)
	}
	e.ended = time.Now()
	healed := within(ctx, healFor, func() bool {
		return c.passesSince(e.ended) && c.watcher.wellSince(e.ended) && c.repaired(ctx, e)
	})
	e.healed = time.Now()
	pause(ctx, settleFor)
	c.broken = !healed
	over := time.Now()
	if e.after, err = c.count(ctx); err != nil {
		return fmt.Errorf("not counted: %w", err)
	}
	e.over = over
	if !healed {
		return fmt.Errorf("not well %s after the fault: %s", healFor, c.ailing(e.ended))
	}
	return nil
}

// revive opens streams in the place of those that a row before has ended.
func (c *cluster) revive() error {
	for _, a := range c.allowed {
		if a.stream.Err() == nil {
			continue
		}
		stream, err := c.gauge.Stream(a.route, streamPatience)
		if err != nil {
			return fmt.Errorf("not counted: %w", err)
		}
		a.stream = stream
	}
	return nil
}

func (c *cluster) forget(before time.Time) {
	for _, a := range c.allowed {
		a.pings.Forget(before)
		a.openings.Forget(before)
		a.stream.Forget(before)
	}
}

// passesSince reports whether each kind of allowed traffic has passed on each route since a
// time, and each stream lives.
func (c *cluster) passesSince(since time.Time) bool {
	for _, a := range c.allowed {
		if a.pings.Last().Before(since) || a.openings.Last().Before(since) || a.stream.Last().Before(since) && a.stream.Err() == nil {
			return false
		}
	}
	return true
}

// ailing says what has not passed since a time, and what the agents said last.
func (c *cluster) ailing(since time.Time) string {
	var ails []string
	for _, a := range c.allowed {
		for _, m := range a.meters() {
			if m.Last().Before(since) {
				ails = append(ails, m.name+" "+a.route.Name+" do not pass")
			}
		}
	}
	ails = append(ails, said(c.watcher.between(time.Now().Add(-2*time.Second), time.Now()))...)
	if len(ails) == 0 {
		return "no repair was said"
	}
	return strings.Join(ails, "; ")
}

// named is a meter with the kind of its traffic.
type named struct {
	*traffic.Meter
	name string
}

func (a *allowed) meters() []named {
	return []named{{a.pings, "pings"}, {a.openings, "new connections"}, {&a.stream.Meter, "stream"}}
}

// repaired reports whether the repair has been said, if the row wants one.
func (c *cluster) repaired(ctx context.Context, e *event) bool {
	if !e.repairs[c.backend] {
		return true
	}
	now, err := c.count(ctx)
	return err == nil && now.status > e.before.status && now.log > e.before.log && now.metric > e.before.metric
}

// counts are the repairs that the agent of node1 has reported.
type counts struct {
	status, log int
	metric      float64
	// last are the newest ones.
	last []control.Repair
	// tried counts the attempts of each kind of denied traffic.
	tried []int
}

func (c *cluster) count(ctx context.Context) (counts, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	status, err := c.node.Status(ctx)
	if err != nil {
		return counts{}, err
	}
	n := counts{status: status.Repairs.Total, last: status.Repairs.Last}
	if n.metric, err = c.node.Metric(ctx, "felixlike_drift_repaired_total"); err != nil {
		return counts{}, err
	}
	text, err := os.ReadFile(c.node.LogFile())
	if err != nil {
		return counts{}, err
	}
	n.log = strings.Count(string(text), "repaired a foreign change")
	for _, d := range c.denied {
		n.tried = append(n.tried, d.meter.Attempts())
	}
	return n, nil
}
