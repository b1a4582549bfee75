package policytest

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// Result is what became of all tests.
type Result struct {
	Tests []TestResult `json:"tests"`
	// Policies is the number of policies.
	Policies int      `json:"policies"`
	Coverage Coverage `json:"coverage"`
	Notes    []string `json:"notes,omitempty"`
}

// TestResult is what became of one test.
type TestResult struct {
	Name         string        `json:"name"`
	File         string        `json:"file"`
	Expectations []Expectation `json:"expectations"`
}

// Expectation is what became of one expectation.
type Expectation struct {
	Text  string `json:"text"`
	Line  int    `json:"line"`
	Holds bool   `json:"holds"`
	// Against are the packets with the other verdict.
	Against []Against `json:"against,omitempty"`
	// Fault says why it could not be decided.
	Fault string `json:"fault,omitempty"`
}

// Against are packets with another verdict than the expected one.
type Against struct {
	From  string   `json:"from"`
	To    string   `json:"to"`
	Ports []string `json:"ports"`
	// Verdict is allowed or denied.
	Verdict string `json:"verdict"`
	Because string `json:"because"`

	ranges []model.PortRange
}

// Coverage says which rules decide in a test.
type Coverage struct {
	Rules   int `json:"rules"`
	Decided int `json:"decided"`
	// Undecided name the others, as in "rule egress[1] of shop/dns".
	Undecided []string `json:"undecided,omitempty"`
}

// Run runs all tests. An expectation that cannot be understood is an error.
func Run(ctx context.Context, in *Input) (*Result, error) {
	if len(in.Tests) == 0 {
		return nil, errors.New("the files have no " + Kind)
	}
	r := &Result{Tests: []TestResult{}, Notes: in.Notes}
	decided := map[oracle.RuleID]bool{}
	var rules []oracle.RuleID
	var errs []error
	isolated := false
	for _, t := range in.Tests {
		w, err := t.world(in.Objects)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		isolated = isolated || t.isolated()
		if r.Policies, rules = w.Policies(), w.Rules(); r.Policies == 0 && !t.isolated() {
			return nil, errors.New("the files have no policy")
		}
		one, err := t.run(ctx, w, decided)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errs = append(errs, err); err == nil {
			r.Tests = append(r.Tests, *one)
		}
	}
	if len(in.Objects.Antrea.NetNamespaces)+len(in.Objects.Antrea.EgressPolicies) > 0 && !isolated {
		r.Notes = append(r.Notes, "NetNamespaces and EgressNetworkPolicies are ignored: no test has spec.cluster.isolation: namespaces")
	}
	r.Coverage = coverage(rules, decided)
	return r, errors.Join(errs...)
}

// run runs one test, and notes the rules that decide.
func (t *Test) run(ctx context.Context, w *preview.World, decided map[oracle.RuleID]bool) (*TestResult, error) {
	all, err := t.statements(w)
	if err != nil {
		return nil, err
	}
	var sets []*preview.Set
	for _, s := range all {
		for _, side := range []side{s.from, s.to} {
			sets = slices.AppendSeq(append(sets, side.set), maps.Values(side.named))
		}
	}
	w.Divide(sets)
	r := &TestResult{Name: t.Metadata.Name, File: t.file}
	known := &claims{decided: decided}
	var errs []error
	for _, s := range all {
		for _, name := range slices.Sorted(maps.Keys(s.missing(w))) {
			errs = append(errs, t.fault(s.field, "%q: %q: the cluster has no such pod, node or address outside", s.text, name))
		}
		if len(errs) > 0 {
			continue
		}
		e, err := known.judge(ctx, w, s)
		if err != nil {
			return nil, err
		}
		e.Line = t.lines.of(s.field)
		r.Expectations = append(r.Expectations, e)
	}
	return r, errors.Join(errs...)
}
