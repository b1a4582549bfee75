// Package verify judges a lab by a truth table: it takes the steps in order,
// brings the cluster to each, tries every probe with real packets, and compares
// the results with the table. A Tally judges all steps together. It is tested
// with a scripted cluster, and with real labs by test/e2e.
package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/probe"
	"github.com/felixlike/felixlike/test/truthtable"
)

// Outcome is the result of one step. Its JSON is a line of the output.
type Outcome struct {
	Suite string `json:"suite"`
	Case  string `json:"case"`
	Step  int    `json:"step"`
	// Got has one character a probe, in order: 1 through, 0 not through,
	// - not tried.
	Got string `json:"got"`

	Wrong []Disagreement `json:"-"`
	// Expected counts the probes with an expectation, Allowed those among them
	// that the table lets through.
	Expected, Allowed int `json:"-"`
	// Late counts the allowed probes that Options.Timeout was too short for: they
	// got their answer within Options.Patience.
	Late int `json:"-"`
	// NotTried counts the probes without a result: no packet of them was sent.
	NotTried int `json:"-"`
	// Reached reports whether the cluster is in the state of the step.
	Reached bool `json:"-"`
	// Programming and Probing are the times of the two halves.
	Programming time.Duration `json:"-"`
	Probing     time.Duration `json:"-"`
}

// Disagreement is a probe that did not go as expected.
type Disagreement struct {
	Step     string
	Result   lab.Result
	Expected bool
}

// Options of Run.
type Options struct {
	// Family is the address family of the probes, and the one that policies'
	// ipBlocks are mapped to; IPv4 if zero.
	Family model.Family
	// Timeout bounds the wait for the answer to a probe; one second if
	// zero.
	Timeout time.Duration
	// Patience bounds the wait for the answer to an allowed probe before it counts as
	// wrong; ten seconds if zero. It covers packets that a busy machine loses or
	// delays; policy drops a denied packet every time. Denied probes are not tried
	// again.
	Patience time.Duration
}

const defaultPatience = 10 * time.Second

// ErrNotTried is in the error of Run when a probe was not tried, for any
// reason: such a probe has no result.
var ErrNotTried = errors.New("not tried")

// Cluster is the lab under test.
type Cluster interface {
	SetState(ctx context.Context, s lab.State) error
	Probe(ctx context.Context, probes []lab.Probe, timeout time.Duration) []lab.Result
}

// Run takes the steps in order and hands each outcome to report. It tries no probe
// of a step with a state that could not be reached. Errors, and probes that were not
// tried, are returned at the end, after the other steps.
func Run(ctx context.Context, l Cluster, steps []truthtable.Step, options Options, report func(Outcome) error) error {
	if options.Family == 0 {
		options.Family = model.IPv4
	}
	if options.Patience <= 0 {
		options.Patience = defaultPatience
	}
	var errs []error
	for i := range steps {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		o, err := runStep(ctx, l, &steps[i], options)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", steps[i].String(), err))
		}
		if err := report(o); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

func runStep(ctx context.Context, l Cluster, step *truthtable.Step, options Options) (Outcome, error) {
	o := Outcome{Suite: step.Suite, Case: step.Case, Step: step.Step}
	probes, err := Probes(step, options.Family)
	if err != nil {
		return o, err
	}
	start := time.Now()
	objects := step.Objects(options.Family)
	err = l.SetState(ctx, lab.State{
		Nodes: objects.Nodes, Namespaces: objects.Namespaces, Pods: objects.Pods, Policies: objects.Policies,
		ClusterPolicies: objects.ClusterPolicies, Antrea: objects.Antrea,
	})
	o.Programming, o.Reached = time.Since(start), err == nil
	var results []lab.Result
	if err == nil {
		start = time.Now()
		results = l.Probe(ctx, probes, options.Timeout)
		o.Late = insist(ctx, l, step, results, options.Patience)
		o.Probing = time.Since(start)
	} else {
		for _, p := range probes {
			results = append(results, lab.Result{Probe: p, Reason: "state not reached"})
		}
	}
	return o, errors.Join(err, o.compare(step, results))
}

// compare fills in the verdicts of the results. It returns an error that names the first
// probe that was not tried.
func (o *Outcome) compare(step *truthtable.Step, results []lab.Result) error {
	got := make([]byte, len(results))
	var err error
	for i, r := range results {
		got[i] = r.Char()
		expect := step.Probes[i].Expect
		if expect != nil {
			o.Expected++
			if *expect {
				o.Allowed++
			}
		}
		switch {
		case !r.Tried:
			o.NotTried++
			if err == nil {
				err = fmt.Errorf("probe %s -> %s %s/%d: %w: %s", r.Probe.From, r.Probe.To, r.Probe.Protocol, r.Probe.Port, ErrNotTried, r.Reason)
			}
		case expect != nil && r.Through != *expect:
			o.Wrong = append(o.Wrong, Disagreement{Step: step.String(), Result: r, Expected: *expect})
		}
	}
	o.Got = string(got)
	if o.NotTried > 1 {
		err = fmt.Errorf("%d of %d probes, the first: %w", o.NotTried, len(results), err)
	}
	return err
}

// insist tries unanswered probes of the table's allowed ones again, and
// returns the number that get an answer. A refusal is an answer.
func insist(ctx context.Context, l Cluster, step *truthtable.Step, results []lab.Result, patience time.Duration) (late int) {
	var again []lab.Probe
	var index []int
	for i, r := range results {
		if expect := step.Probes[i].Expect; expect != nil && *expect && r.Tried && r.Reason == probe.NoAnswer {
			again, index = append(again, r.Probe), append(index, i)
		}
	}
	if len(again) == 0 {
		return 0
	}
	for i, r := range l.Probe(ctx, again, patience) {
		if r.Through {
			late++
		}
		r.Attempts += results[index[i]].Attempts
		results[index[i]] = r
	}
	return late
}

// Probes returns the probes of a step, as a lab takes them.
func Probes(step *truthtable.Step, family model.Family) ([]lab.Probe, error) {
	probes := make([]lab.Probe, len(step.Probes))
	for i, p := range step.Probes {
		proto, err := model.ParseProtocol(p.Protocol)
		if err != nil {
			return nil, fmt.Errorf("probes[%d]: %w", i, err)
		}
		probes[i] = lab.Probe{From: p.From, To: p.To, Protocol: proto, Port: p.Port, Family: family}
	}
	return probes, nil
}
